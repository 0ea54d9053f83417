"""Learning rates by step."""

from __future__ import annotations

import tensorflow as tf


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

    Raises:
      ValueError: a negative number, or a warm-up as long as the training.
    """
    if min(base, power, warmup_steps, warmup_start) < 0:
        found = f"base={base}, power={power}, warmup_steps={warmup_steps}, warmup_start={warmup_start}"
        raise ValueError(f"{found}: none may be negative")
    if max_steps is not None and max_steps <= warmup_steps:
        raise ValueError(f"warmup_steps={warmup_steps}: must be less than the {max_steps} steps of the training")
    step = tf.cast(step, tf.float32)
    rate = tf.fill(tf.shape(step), base)
    if max_steps is not None:
        progress = (step - warmup_steps) / (max_steps - warmup_steps)
        rate *= (1.0 - tf.clip_by_value(progress, 0.0, 1.0)) ** power
    if not warmup_steps:
        return rate
    return tf.where(step < warmup_steps, warmup_start + (base - warmup_start) * step / warmup_steps, rate)
