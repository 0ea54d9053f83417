"""A custom model on images, as a user would write it, for `--model tests.support.own_image_models:model_fn`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """One dense layer over 8x8 averages of the image, or of the difference between both images of a pair."""
    task_spec = params["task_spec"]
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    seen = [tf.nn.avg_pool2d(normalized(images, transform_output), 8, 8, "VALID") for images in features.values()]
    inputs = tf.keras.layers.Flatten()(tf.abs(seen[0] - seen[1]) if task_spec.pairs else seen[0])
    logits = tf.keras.layers.Dense(len(task_spec.classes))(inputs)
    if mode == tf_estimator.ModeKeys.PREDICT:
        top = tf.nn.top_k(logits, min(5, len(task_spec.classes))).indices
        return tf_estimator.EstimatorSpec(mode, predictions={"logits": logits, "top_1": top[:, 0], "top_5": top})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, 1))}
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
