"""`softmax`: one dense layer, as a complete `model_fn`. Copy this file as an example for your own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized
from trainer.models.canned import classes_of, deep_columns, prepare
from trainer.spec.task_spec import AnyTaskSpec, ImageTaskSpec
from trainer.strategies.tpu import across_cores


def model_fn(
    features: Mapping[str, Any], labels: tf.Tensor | None, mode: str, params: Mapping[str, Any], config: Any
) -> Any:
    """Builds the graph of softmax regression for TRAIN, EVAL or PREDICT.

    Args:
      features: transformed features by name, or `image`; `trainer.spec.task_spec` describes both.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: the hyper-parameters by name, and `task_spec`.
      config: the Estimator's `RunConfig`.
    """
    task_spec: AnyTaskSpec = params["task_spec"]
    if isinstance(task_spec, ImageTaskSpec):
        pixels = normalized(features["image"], tft.TFTransformOutput(task_spec.run_dir))
        inputs = tf.keras.layers.Flatten()(pixels)  # [batch, width]
        classes, weight = len(task_spec.classes), None
    else:
        columns = deep_columns(
            task_spec.inputs,
            indicator_limit=params["indicator_limit"],
            embedding_size=params["embedding_size"],
        )
        prepared = prepare(features, task_spec.inputs)
        inputs = tf.keras.layers.DenseFeatures(columns)(prepared)  # [batch, width]
        classes, weight = classes_of(task_spec, "softmax"), task_spec.weight
    logits = tf.keras.layers.Dense(classes)(inputs)  # [batch, classes]
    probabilities = tf.nn.softmax(logits)
    class_ids = tf.argmax(logits, axis=1)

    predictions = {"class_id": class_ids, "probabilities": probabilities, "logits": logits}

    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    weights = features[weight] if weight else None
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits, 1.0 if weights is None else weights)

    if mode == tf_estimator.ModeKeys.EVAL:
        # Accuracy, log loss and similar metrics are computed from the predictions. Use `eval_metric_ops` for metrics of
        # your own.
        return tf_estimator.EstimatorSpec(mode, loss=loss, predictions=predictions)

    optimizer = across_cores(tf.compat.v1.train.AdamOptimizer(params["learning_rate"]))
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
