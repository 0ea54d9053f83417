"""What a model asks about a TPU: whether its step is compiled for one, and how many cores share a batch.

Each core makes the step on its part of the batch, so the cores' gradients must be averaged before they are applied.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator

Gradients = Sequence[tuple[Any, Any]]  # (gradient, variable)


def compiles_step(mode: str, config: Any) -> bool:
    """Whether a `model_fn` builds a step for a TPU, or one that takes the same way on the CPU.

    Args:
      mode: TRAIN, EVAL or PREDICT; only training steps are compiled.
      config: the Estimator's `RunConfig`, which is one of `tf_estimator.tpu` if a TPU trains.
    """
    return mode == tf_estimator.ModeKeys.TRAIN and isinstance(config, tf_estimator.tpu.RunConfig)


def cores() -> int | None:
    """How many cores make the step that is being built; None outside of a TPU's step, as on the CPU."""
    tpu_function: Any = importlib.import_module("tensorflow.python.tpu.tpu_function")  # private: the only place
    count = tpu_function.get_tpu_context().number_of_shards
    return None if count is None else int(count)


def across_cores(optimizer: Any) -> Any:
    """A `tf.compat.v1.train.Optimizer` that applies the mean of the cores' gradients; on the CPU, as it is."""
    return optimizer if cores() is None else tf.compat.v1.tpu.CrossShardOptimizer(optimizer)


def keras_settings() -> dict[str, Any]:
    """The same for an optimizer of Keras 2, which `CrossShardOptimizer` does not take: arguments of its constructor."""
    return {} if cores() is None else {"gradient_transformers": [mean_over_cores]}


def mean_over_cores(gradients: Gradients) -> list[tuple[Any, Any]]:
    """Replaces each core's gradients by their mean over all cores, in a TPU's step."""
    count = cores() or 1
    everyone = [list(range(count))]
    return [
        (tf.raw_ops.CrossReplicaSum(input=tf.convert_to_tensor(gradient) / count, group_assignment=everyone), variable)
        for gradient, variable in gradients
    ]
