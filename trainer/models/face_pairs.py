"""`face_pairs`: two images in, the same person or not out, by the difference of their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.hooks import HardestImagesHook
from trainer.images.normalize import normalized
from trainer.models import FacePairsHparams
from trainer.models.face_pairs_net import contrast_loss, embed, likeness
from trainer.models.image_training import train_spec
from trainer.models.squeezenext_blocks import LayerOptions
from trainer.spec.image_task_spec import ImageTaskSpec
from trainer.strategies.tpu_cores import compiles_step

ModeKeys = tf_estimator.ModeKeys
SIDES = ("left", "right")
_THRESHOLDS = 2000  # of the metric `auc`, which is then exact to about three digits


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """The three paths.

    PREDICT gives `logits`, the log odds that both are the same, float32 `[batch]`, `probabilities` of different and
    same, float32 `[batch, 2]`, and `class_id`, int64 `[batch]`. EVAL gives `auc`, `accuracy`, `average_loss` and
    `label/mean`, the share of pairs of the same.

    Args:
      features: `left` and `right`, uint8 `[batch, height, width, 3]`.
      labels: 1 for the same, else 0, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `FacePairsHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: FacePairsHparams = params["hparams"]
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    options = LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2)
    with tf.compat.v1.variable_scope("face_pairs"):
        embeddings = []
        for side in SIDES:
            with tf.compat.v1.variable_scope("tower", reuse=side != SIDES[0]):
                embedding = embed(
                    normalized(features[side], transform_output),
                    width=hparams.width,
                    embedding_size=hparams.embedding_size,
                    dropout=hparams.dropout,
                    grayscale=hparams.grayscale,
                    options=options,
                )
            embeddings.append(embedding)
        left, right = embeddings
        logits = likeness(left, right)
        contrast = contrast_loss(left, right, labels) if mode == ModeKeys.TRAIN and hparams.contrast else None
    probability = tf.sigmoid(logits)
    class_ids = tf.cast(logits > 0, tf.int64)

    probabilities = tf.stack([1 - probability, probability], axis=1)
    predictions = {"class_id": class_ids, "logits": logits, "probabilities": probabilities}

    if mode == ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
    loss = tf.reduce_mean(losses)
    if mode == ModeKeys.EVAL:
        metrics = {
            "auc": tf.compat.v1.metrics.auc(
                labels, probability, num_thresholds=_THRESHOLDS, summation_method="careful_interpolation"
            ),
            "accuracy": tf.compat.v1.metrics.accuracy(labels, class_ids),
            "average_loss": tf.compat.v1.metrics.mean(losses),
            "label/mean": tf.compat.v1.metrics.mean(labels),
        }
        hook = HardestImagesHook(
            config.model_dir,
            images=_side_by_side(features),
            labels=labels,
            class_ids=class_ids,
            losses=losses,
            class_names=task_spec.classes,
        )
        return tf_estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops=metrics, evaluation_hooks=[hook], predictions=predictions
        )

    tf.compat.v1.summary.scalar("log_loss", loss)
    if contrast is not None:
        tf.compat.v1.summary.scalar("contrast_loss", contrast)
        loss += hparams.contrast * contrast
    return train_spec(
        loss=loss,
        optimizer=tf.compat.v1.train.AdamOptimizer(_learning_rate(hparams, task_spec.max_steps)),
        images=None if compiles_step(mode, config) else _side_by_side(features),
        image_summary_steps=hparams.image_summary_steps,
        model_dir=config.model_dir,
    )


def _side_by_side(features: Mapping[str, Any]) -> tf.Tensor:
    return tf.concat([features[side] for side in SIDES], axis=2)


def _learning_rate(hparams: FacePairsHparams, max_steps: int | None) -> Any:
    if max_steps is None:
        return hparams.learning_rate
    step = tf.compat.v1.train.get_global_step()
    return tf.compat.v1.train.cosine_decay(hparams.learning_rate, step, max_steps)


def build(task_spec: ImageTaskSpec, hparams: FacePairsHparams, config: Any) -> Any:
    """An Estimator over `model_fn`."""
    return tf_estimator.Estimator(model_fn, config=config, params={"hparams": hparams, "task_spec": task_spec})
