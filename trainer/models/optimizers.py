"""How models are trained: learning rates by step, Adam, and the TRAIN path that the image models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.images.hooks import thumbnails
from trainer.strategies.tpu import keras_settings


def polynomial_decay(
    step: tf.Tensor | int,
    *,
    base: float,
    max_steps: int | None,
    power: float = 2.0,
    warmup_steps: int = 0,
    warmup_start: float = 0.0,
) -> tf.Tensor:
    """Linear warm-up to `base`, then `base * (1 - t) ** power`, t being the share of the steps after the warm-up.

    This is Caffe's `poly` policy, which SqueezeNext was trained with (power 2; base 0.4, warm-up from 0.1 over 780 of
    150,136 steps of 1,024 images), but for the start of the decay: there it counts the steps of the warm-up too, and so
    jumps at its end; here it is continuous.

    Args:
      step: how many steps have been made, an integer, `[]` or any shape.
      base: the rate at the end of the warm-up.
      max_steps: the step where the rate reaches 0, and stays; None: it stays at `base`.
      power: of the decay.
      warmup_steps: length of the warm-up; 0 for none.
      warmup_start: the rate at step 0, if there is a warm-up.

    Returns:
      the rate for the next step, float32, in the shape of `step`.
    """
    step = tf.cast(step, tf.float32)
    rate = tf.fill(tf.shape(step), base)
    if max_steps is not None:
        progress = (step - warmup_steps) / (max_steps - warmup_steps)
        rate *= (1.0 - tf.clip_by_value(progress, 0.0, 1.0)) ** power
    if not warmup_steps:
        return rate
    return tf.where(step < warmup_steps, warmup_start + (base - warmup_start) * step / warmup_steps, rate)


def learning_rate(kind: str, hparams: Any, step: tf.Tensor | int, max_steps: int | None) -> Any:
    """The learning rate for the next step, as an optimizer uses it and as it is said: float32, or the hyper-parameter.

    Args:
      kind: `constant`; `cosine`: down to 0 along a cosine, unless `hparams.decay` is false; `polynomial`: up from
        `warmup_start` during the warm-up, then down to 0.
      hparams: the model's hyper-parameters.
      step: how many steps have been made.
      max_steps: those of the training; None: it has no end, and nothing decays.
    """
    if kind == "polynomial":
        return polynomial_decay(
            step,
            base=hparams.learning_rate,
            max_steps=max_steps,
            power=hparams.power,
            warmup_steps=int(hparams.warmup * (max_steps or 0)),
            warmup_start=hparams.warmup_start,
        )
    if kind == "constant" or max_steps is None or not getattr(hparams, "decay", True):
        return hparams.learning_rate
    return tf.keras.optimizers.schedules.CosineDecay(hparams.learning_rate, max_steps)(step)


def adam(hparams: Any, max_steps: int | None) -> Callable[[], Any]:
    """A function that makes the optimizer: canned Estimators call it in the graph that they train in.

    `hparams` hold `learning_rate`, `decay`, and of deep models `weight_decay`. The decay of the rate is Loshchilov and
    Hutter's cosine without restarts (SGDR, 2017, equation 5), that of the weights their AdamW (Decoupled Weight Decay
    Regularization, 2019, algorithm 2).
    """

    weight_decay = getattr(hparams, "weight_decay", 0.0)

    def make() -> Any:
        decays = hparams.decay and max_steps is not None
        rate = hparams.learning_rate
        schedule = tf.keras.optimizers.schedules.CosineDecay(rate, max_steps) if decays else rate
        if not weight_decay:
            return tf.keras.optimizers.legacy.Adam(schedule, **keras_settings())
        return AdamW(schedule, weight_decay=weight_decay, **keras_settings())

    return make


class AdamW(tf.keras.optimizers.legacy.Adam):
    """Adam, which also takes a share of each kernel off in a step: `weight_decay` times the learning rate.

    Biases keep theirs, and so do embeddings, of which a step sees few rows.
    """

    def __init__(self, learning_rate: Any, *, weight_decay: float, **settings: Any) -> None:
        super().__init__(learning_rate, name="Adam", **settings)  # its slots are Adam's, whose checkpoints fit
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if "kernel" not in var.name:
            return super()._resource_apply_dense(grad, var, apply_state)  # private: for optimizers to override
        rate = apply_state[(var.device, var.dtype.base_dtype)]["lr_t"]
        with tf.control_dependencies([var.assign_sub(self._weight_decay * rate * var, read_value=False)]):
            return super()._resource_apply_dense(grad, var, apply_state)  # private: for optimizers to override

    def get_config(self) -> dict[str, Any]:
        """Its settings, by which Keras makes another."""
        return {**super().get_config(), "weight_decay": self._weight_decay}


SHOWN = 4  # images in a summary
SUMMARIES = 20  # of images in a training, of which TensorBoard shows ten


def train_spec(
    *,
    loss: tf.Tensor,
    optimizer: Any,
    images: tf.Tensor,
    image_summary_steps: int,
    max_steps: int | None,
    model_dir: str,
) -> Any:
    """An EstimatorSpec for TRAIN.

    Args:
      loss: float32 `[]`; the L2 terms that the layers have left in the graph's collection are added.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      images: as the model gets them, uint8 `[batch, height, width, 3]`.
      image_summary_steps: some of them are written each so many steps, at most `SUMMARIES` times; 0 for never.
      max_steps: those of the training; None: it has no end.
      model_dir: where these are written.
    """
    total = loss + tf.compat.v1.losses.get_regularization_loss()
    tf.compat.v1.summary.scalar("loss_without_l2", loss)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)  # batch norm's moving averages
    with tf.control_dependencies([tf.group(*updates)]):  # as one: each gradient would have an edge to each of them
        train_op = optimizer.minimize(total, tf.compat.v1.train.get_global_step())
    hooks: list[Any] = []
    if image_summary_steps:
        summary = tf.compat.v1.summary.image("images", thumbnails(images[:SHOWN]), max_outputs=SHOWN, collections=[])
        every = max(image_summary_steps, -(-(max_steps or 0) // SUMMARIES))
        hooks.append(tf.compat.v1.train.SummarySaverHook(every, output_dir=model_dir, summary_op=summary))
    return tf_estimator.EstimatorSpec(
        tf_estimator.ModeKeys.TRAIN, loss=total, train_op=train_op, training_chief_hooks=hooks
    )
