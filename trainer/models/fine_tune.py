"""Starts a training from the weights of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError


def fine_tune_scaffold(path: str | None, variables: Sequence[Any]) -> Any:
    """A Scaffold that takes initial values from a checkpoint: when training begins, never when it goes on.

    Args:
      path: a checkpoint, or a model directory, whose latest one is taken; None: all start from their initial values.
      variables: those that are taken, by name; all others start from their initial values.

    Raises:
      UsageError: there is no checkpoint, or it lacks a variable or holds one of another shape.
    """
    if path is None:
        return tf.compat.v1.train.Scaffold()
    checkpoint = tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path
    if checkpoint is None or not tf.compat.v1.train.checkpoint_exists(checkpoint):
        raise UsageError(f"fine_tune_checkpoint={path}: no checkpoint there; give a checkpoint or a model directory")
    shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        if shapes.get(name) != shape:
            found = f"holds it as {shapes[name]}" if name in shapes else "lacks it"
            raise UsageError(
                f"fine_tune_checkpoint={path}: the model has {name} {shape}, but {checkpoint} has {found}. "
                "Use a checkpoint of the same model with the same hyper-parameters."
            )
    saver = tf.compat.v1.train.Saver(list(variables))
    return tf.compat.v1.train.Scaffold(init_fn=lambda _, session: saver.restore(session, checkpoint))
