"""Adam with a learning rate that decays to 0 along a cosine, where the end of training is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.strategies.tpu_cores import keras_settings


def adam(learning_rate: float, *, decay: bool, max_steps: int | None) -> Callable[[], Any]:
    """A function that makes the optimizer: canned Estimators call it in the graph that they train in.

    The decay is Loshchilov and Hutter's cosine without restarts (SGDR, 2017, equation 5).
    """

    def make() -> Any:
        decays = decay and max_steps is not None
        rate = tf.keras.optimizers.schedules.CosineDecay(learning_rate, max_steps) if decays else learning_rate
        return tf.keras.optimizers.legacy.Adam(rate, **keras_settings())

    return make
