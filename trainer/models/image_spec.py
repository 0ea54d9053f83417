"""Makes the EstimatorSpecs of models of images: that of TRAIN, and those of a classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.images.summaries import thumbnails
from trainer.spec.task_spec import ImageTaskSpec

ModeKeys = tf_estimator.ModeKeys
SHOWN = 4  # images in a summary
SUMMARY_STEPS, SUMMARIES = 100, 20  # the least steps between two summaries of images, and the most of a training


def train_spec(loss: tf.Tensor, optimizer: Any, images: tf.Tensor, task_spec: ImageTaskSpec, config: Any) -> Any:
    """Returns the EstimatorSpec of TRAIN. Some images are shown in TensorBoard, at most `SUMMARIES` times.

    Args:
      loss: float32 `[]`; the L2 terms that the layers have left in the graph's collection are added.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      images: as the model gets them, uint8 `[batch, height, width, 3]`.
      task_spec: says how long the training is.
      config: the Estimator's `RunConfig`.
    """
    total = loss + tf.compat.v1.losses.get_regularization_loss()
    tf.compat.v1.summary.scalar("loss_without_l2", loss)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)  # batch norm's moving averages
    with tf.control_dependencies([tf.group(*updates)]):  # as one: each gradient would have an edge to each of them
        train_op = optimizer.minimize(total, tf.compat.v1.train.get_global_step())
    summary = tf.compat.v1.summary.image("images", thumbnails(images[:SHOWN]), max_outputs=SHOWN, collections=[])
    every = max(SUMMARY_STEPS, -(-(task_spec.max_steps or 0) // SUMMARIES))
    hook = tf.compat.v1.train.SummarySaverHook(every, output_dir=config.model_dir, summary_op=summary)
    return tf_estimator.EstimatorSpec(ModeKeys.TRAIN, loss=total, train_op=train_op, training_chief_hooks=[hook])


def classes_spec(logits: tf.Tensor, labels: Any, mode: str, train: Callable[[tf.Tensor], Any]) -> Any:
    """Returns the EstimatorSpec of a classification of images.

    PREDICT gives `logits` and `probabilities`, float32 `[batch, classes]`, `class_id` and `top_1`, int64 `[batch]`, and
    `top_5`, the ids of the most probable classes, most probable first, int64 `[batch, 5]` (fewer where there are fewer
    classes). EVAL gives these, too.

    Args:
      logits: float32 `[batch, classes]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      train: gives the spec for TRAIN of the loss, float32 `[]`.
    """
    best = tf.cast(tf.math.top_k(logits, min(5, logits.shape[-1])).indices, tf.int64)
    class_ids = best[:, 0]

    predictions = {
        "class_id": class_ids,
        "top_1": class_ids,
        "top_5": best,
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
    }

    if mode == ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    if mode == ModeKeys.EVAL:
        return tf_estimator.EstimatorSpec(mode, loss=loss, predictions=predictions)

    batch_accuracy = tf.reduce_mean(tf.cast(tf.equal(labels, class_ids), tf.float32))
    tf.compat.v1.summary.scalar("batch_accuracy", batch_accuracy)
    return train(loss)
