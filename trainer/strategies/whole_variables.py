"""Checkpoints of replicated models hold each variable once, under its own name, so that any strategy resumes from them.

Keras 2's optimizers make their slots by `tf.Variable`, which adds the part on each device to the graph's variables,
beside the whole. A checkpoint would then hold `kernel/m` and `kernel/m/replica_1`, which one device does not have.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def with_whole_variables(spec: Any) -> Any:
    """An `EstimatorSpec` for TRAIN whose graph counts no parts as variables; as it is, without a strategy."""
    if not tf.distribute.has_strategy():
        return spec
    return spec._replace(training_hooks=[_LeaveOutParts(), *spec.training_hooks])


class _LeaveOutParts(tf.compat.v1.train.SessionRunHook):
    """Removes the parts before the saver and the initializers are made, which a session does after this."""

    def begin(self) -> None:
        strategy = tf.distribute.get_strategy()
        variables = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        parts = {id(part) for v in variables for part in strategy.experimental_local_results(v) if part is not v}
        variables[:] = [v for v in variables if id(v) not in parts]
