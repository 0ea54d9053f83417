"""Makes the EstimatorSpecs of image models: for TRAIN, and for all modes of a classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.images.summaries import thumbnails
from trainer.spec.task_spec import ImageTaskSpec

ModeKeys = tf_estimator.ModeKeys
SHOWN = 4  # images in a summary
SUMMARY_STEPS, SUMMARIES = 100, 20  # image summaries: the least steps between two, the most in a training


def train_spec(loss: tf.Tensor, optimizer: Any, images: tf.Tensor, task_spec: ImageTaskSpec, config: Any) -> Any:
    """Returns the EstimatorSpec of TRAIN. It also writes some images to TensorBoard, at most `SUMMARIES` times.

    Args:
      loss: float32 `[]`, without L2 terms. The L2 terms that the layers have put into the graph's collection are added.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      images: the images that the model reads, uint8 `[batch, height, width, 3]`.
      task_spec: tells the number of steps of the training.
      config: the Estimator's `RunConfig`.
    """
    total = loss + tf.compat.v1.losses.get_regularization_loss()
    tf.compat.v1.summary.scalar("loss_without_l2", loss)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)  # batch norm's moving averages
    with tf.control_dependencies([tf.group(*updates)]):  # a group: else each gradient would depend on each update
        train_op = optimizer.minimize(total, tf.compat.v1.train.get_global_step())
    summary = tf.compat.v1.summary.image("images", thumbnails(images[:SHOWN]), max_outputs=SHOWN, collections=[])
    # -(-a // b) divides and rounds up.
    every = max(SUMMARY_STEPS, -(-(task_spec.max_steps or 0) // SUMMARIES))
    hook = tf.compat.v1.train.SummarySaverHook(every, output_dir=config.model_dir, summary_op=summary)
    return tf_estimator.EstimatorSpec(ModeKeys.TRAIN, loss=total, train_op=train_op, training_chief_hooks=[hook])


def classes_spec(logits: tf.Tensor, labels: Any, mode: str, train: Callable[[tf.Tensor], Any]) -> Any:
    """Returns the EstimatorSpec of an image classification, for any mode.

    PREDICT and EVAL give these predictions: `logits` and `probabilities`, float32 `[batch, classes]`; `class_id` and
    `top_1`, int64 `[batch]`; and `top_5`, the ids of the five most probable classes, most probable first, int64
    `[batch, 5]` (fewer if there are fewer classes).

    Args:
      logits: float32 `[batch, classes]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      train: returns the spec for TRAIN, given the loss, float32 `[]`.
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
