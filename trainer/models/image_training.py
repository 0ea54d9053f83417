"""The TRAIN path that the image models share: the train op, what is written along the way, and where weights start."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.models.model_stats import ModelStatsHook
from trainer.strategies.tpu_cores import across_cores

SHOWN = 4  # images in a summary


def train_spec(
    *,
    loss: tf.Tensor,
    optimizer: Any,
    images: tf.Tensor | None,
    image_summary_steps: int,
    model_dir: str,
    scaffold: Any = None,
) -> Any:
    """An EstimatorSpec for TRAIN.

    Args:
      loss: float32 `[]`; the L2 terms that the layers have left in the graph's collection are added.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      images: as the model gets them, uint8 `[batch, height, width, 3]`; None for a TPU's step, which cannot write any.
      image_summary_steps: some of them are written each so many steps; 0 for never.
      model_dir: where these are written, and `model_stats.csv`.
      scaffold: None for Estimator's own.
    """
    total = loss + tf.compat.v1.losses.get_regularization_loss()
    tf.compat.v1.summary.scalar("loss_without_l2", loss)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)  # batch norm's moving averages
    with tf.control_dependencies(updates):
        train_op = across_cores(optimizer).minimize(total, tf.compat.v1.train.get_global_step())
    hooks: list[Any] = [ModelStatsHook(model_dir)]
    if image_summary_steps and images is not None:
        summary = tf.compat.v1.summary.image("images", images, max_outputs=SHOWN, collections=[])
        hooks.append(tf.compat.v1.train.SummarySaverHook(image_summary_steps, output_dir=model_dir, summary_op=summary))
    return tf_estimator.EstimatorSpec(
        tf_estimator.ModeKeys.TRAIN, loss=total, train_op=train_op, training_chief_hooks=hooks, scaffold=scaffold
    )
