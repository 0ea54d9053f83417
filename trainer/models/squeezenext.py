"""`squeezenext`: images to classes by SqueezeNext (Gholami et al., arXiv 1803.10615)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.hooks import HardestImagesHook
from trainer.images.metrics import recall_at, top
from trainer.images.normalize import normalized
from trainer.models import SqueezenextHparams
from trainer.models.fine_tune import fine_tune_scaffold
from trainer.models.image_training import train_spec
from trainer.models.schedules import polynomial_decay
from trainer.models.squeezenext_blocks import LayerOptions
from trainer.models.squeezenext_net import CLASSIFIER, SCOPE, squeezenext
from trainer.models.squeezenext_variants import VARIANTS
from trainer.spec.image_task_spec import ImageTaskSpec
from trainer.strategies.tpu_cores import compiles_step

ModeKeys = tf_estimator.ModeKeys


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """The three paths.

    PREDICT gives `logits` and `probabilities`, float32 `[batch, classes]`, `class_id` and `top_1`, int64 `[batch]`, and
    `top_5`, the ids of the most probable classes, most probable first, int64 `[batch, 5]` (fewer where there are fewer
    classes). EVAL gives `accuracy`, `recall_at_1`, `recall_at_5` and `average_loss`.

    Args:
      features: `image`, uint8 `[batch, height, width, 3]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `SqueezenextHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.

    Raises:
      UsageError: in TRAIN, a `fine_tune_checkpoint` that does not fit.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: SqueezenextHparams = params["hparams"]
    images = features["image"]
    logits = squeezenext(
        normalized(images, tft.TFTransformOutput(task_spec.run_dir)),
        variant=VARIANTS[hparams.variant],
        classes=len(task_spec.classes),
        options=LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2, momentum=hparams.batch_norm_momentum),
        stem_stride=hparams.stem_stride,
    )
    best = top(5, logits)
    class_ids = best[:, 0]

    predictions = {"class_id": class_ids, "top_1": class_ids, "top_5": best, "logits": logits}
    predictions["probabilities"] = tf.nn.softmax(logits)

    if mode == ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)

    if mode == ModeKeys.EVAL:
        metrics = {
            "accuracy": tf.compat.v1.metrics.accuracy(labels, class_ids),
            "recall_at_1": recall_at(1, labels, logits),
            "recall_at_5": recall_at(5, labels, logits),
            "average_loss": tf.compat.v1.metrics.mean(losses),
        }
        hook = HardestImagesHook(
            config.model_dir,
            images=images,
            labels=labels,
            class_ids=class_ids,
            losses=losses,
            class_names=task_spec.classes,
        )
        return tf_estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops=metrics, evaluation_hooks=[hook], predictions=predictions
        )

    batch_accuracy = tf.reduce_mean(tf.cast(tf.equal(labels, class_ids), tf.float32))
    tf.compat.v1.summary.scalar("batch_accuracy", batch_accuracy)
    kept = [v for v in tf.compat.v1.global_variables(f"{SCOPE}/") if not v.op.name.startswith(f"{CLASSIFIER}/")]
    return train_spec(
        loss=loss,
        optimizer=tf.compat.v1.train.MomentumOptimizer(_learning_rate(hparams, task_spec.max_steps), hparams.momentum),
        images=None if compiles_step(mode, config) else images,
        image_summary_steps=hparams.image_summary_steps,
        model_dir=config.model_dir,
        scaffold=fine_tune_scaffold(hparams.fine_tune_checkpoint, kept),
    )


def _learning_rate(hparams: SqueezenextHparams, max_steps: int | None) -> tf.Tensor:
    rate = polynomial_decay(
        tf.compat.v1.train.get_global_step(),
        base=hparams.learning_rate,
        max_steps=max_steps,
        power=hparams.power,
        warmup_steps=int(hparams.warmup * (max_steps or 0)),
        warmup_start=hparams.warmup_start,
    )
    tf.compat.v1.summary.scalar("learning_rate", rate)
    return rate


def build(task_spec: ImageTaskSpec, hparams: SqueezenextHparams, config: Any) -> Any:
    """An Estimator over `model_fn`."""
    return tf_estimator.Estimator(model_fn, config=config, params={"hparams": hparams, "task_spec": task_spec})
