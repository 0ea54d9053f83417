"""Starts a training from the weights of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from trainer.models.warm_start import checkpoint_at


def fine_tune_scaffold(path: str | None, variables: Sequence[Any]) -> Any:
    """A Scaffold that takes initial values from a checkpoint: when training begins, never when it goes on.

    Args:
      path: a checkpoint, a model directory, whose latest one is taken, or an export; None: all start from their initial
        values.
      variables: those that are taken, by name; all others start from their initial values.

    Raises:
      UsageError: there is no checkpoint, or it lacks a variable or holds one of another shape.
    """
    if path is None:
        return tf.compat.v1.train.Scaffold()
    checkpoint = checkpoint_at(path, flag="fine_tune_checkpoint=")
    # Only between the replicas of a strategy does a variable that each has a part of have its own name, and is whole.
    between = tf.distribute.get_replica_context().merge_call
    saver = between(lambda _, shared: _fitting_saver(shared, path, checkpoint), args=(list(variables),))
    return tf.compat.v1.train.Scaffold(init_fn=lambda _, session: saver.restore(session, checkpoint))


def _fitting_saver(variables: Sequence[Any], path: str, checkpoint: str) -> Any:
    """A Saver of variables that the checkpoint holds in the same shapes; `path` is how the user called it."""
    shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        if shapes.get(name) != shape:
            found = f"holds it as {shapes[name]}" if name in shapes else "lacks it"
            raise UsageError(
                f"fine_tune_checkpoint={path}: the model has {name} {shape}, but {checkpoint} has {found}. "
                "Use a checkpoint of the same model with the same hyper-parameters."
            )
    with tf.control_dependencies(None):  # no part of a TPU's step, in which this may be built
        return tf.compat.v1.train.Saver(list(variables))
