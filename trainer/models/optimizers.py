"""How models are trained: the learning rate of each step, and the optimizers Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.strategies.tpu import keras_settings


def warmed_up(step: tf.Tensor | int, *, base: float, max_steps: int | None, warmup_steps: int) -> tf.Tensor:
    """Returns a learning rate that grows linearly from 0 to `base`, and then decays as `base * (1 - t) ** 2`.

    t is the share of the steps after the warm-up that have been made. This is the `poly` policy of Caffe, with which
    SqueezeNext was trained, except for the start of the decay. Caffe's t also counts the steps of the warm-up, so that
    the rate jumps when the warm-up ends; here it is continuous.

    Args:
      step: how many steps have been made, an integer, `[]` or any shape.
      base: the rate at the end of the warm-up.
      max_steps: the step at which the rate reaches 0, where it then stays. None: the rate stays at `base`.
      warmup_steps: length of the warm-up; 0 for no warm-up.

    Returns:
      The rate for the next step, float32, in the shape of `step`.
    """
    step = tf.cast(step, tf.float32)
    rate = tf.fill(tf.shape(step), base)
    if max_steps is not None:
        progress = (step - warmup_steps) / (max_steps - warmup_steps)
        rate *= (1.0 - tf.clip_by_value(progress, 0.0, 1.0)) ** 2.0
    return tf.where(step < warmup_steps, base * step / warmup_steps, rate) if warmup_steps else rate


def learning_rate(kind: str, hparams: Any, step: tf.Tensor | int, max_steps: int | None) -> Any:
    """Returns the learning rate for the next step: a float32 tensor, or a Python number if it is constant.

    Args:
      kind: `constant`; `cosine`: decays to 0 along a cosine, unless `hparams.decay` is false; `warmup`: see
        `warmed_up`.
      hparams: the model's hyper-parameters.
      step: how many steps have been made.
      max_steps: the number of steps of the training. None: the training has no end, and the rate does not decay.
    """
    if kind == "warmup":
        steps = int(hparams.warmup * (max_steps or 0))
        return warmed_up(step, base=hparams.learning_rate, max_steps=max_steps, warmup_steps=steps)
    rate = _cosine(hparams, max_steps) if kind == "cosine" else hparams.learning_rate
    return rate(step) if callable(rate) else rate


def _cosine(hparams: Any, max_steps: int | None) -> Any:
    """Returns the constant rate, or Keras's cosine schedule.

    It is the cosine without restarts of Loshchilov and Hutter (SGDR, 2017, equation 5).
    """
    if max_steps is None or not getattr(hparams, "decay", True):
        return hparams.learning_rate
    return tf.keras.optimizers.schedules.CosineDecay(hparams.learning_rate, max_steps)


def adam(hparams: Any, max_steps: int | None) -> Callable[[], Any]:
    """Returns a function that makes the optimizer. Canned Estimators call it in the graph in which they train.

    Args:
      hparams: hold `learning_rate`, `decay`, and for deep models `weight_decay`, the weight decay of AdamW (Loshchilov
        and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2). Without weight decay the optimizer is
        Adam.
      max_steps: the number of steps of the training; None: it has no end, and the learning rate does not decay.
    """
    weight_decay = getattr(hparams, "weight_decay", 0.0)

    def make() -> Any:
        rate = _cosine(hparams, max_steps)
        if not weight_decay:
            return tf.keras.optimizers.legacy.Adam(rate, **keras_settings())
        return AdamW(rate, weight_decay=weight_decay, **keras_settings())

    return make


class AdamW(tf.keras.optimizers.legacy.Adam):
    """Adam with decoupled weight decay: each step also shrinks each kernel by `weight_decay` times the learning rate.

    Biases do not shrink, and neither do embeddings, because a step sees few of their rows.
    """

    def __init__(self, learning_rate: Any, *, weight_decay: float, **settings: Any) -> None:
        super().__init__(learning_rate, name="Adam", **settings)  # the same slot names: checkpoints of Adam fit
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if "kernel" not in var.name:
            return super()._resource_apply_dense(grad, var, apply_state)  # private: for optimizers to override
        rate = apply_state[(var.device, var.dtype.base_dtype)]["lr_t"]
        with tf.control_dependencies([var.assign_sub(self._weight_decay * rate * var, read_value=False)]):
            return super()._resource_apply_dense(grad, var, apply_state)  # private: for optimizers to override

    def get_config(self) -> dict[str, Any]:
        """Returns the optimizer's settings, from which Keras makes a copy."""
        return {**super().get_config(), "weight_decay": self._weight_decay}
