"""`--inter_op_threads` and `--intra_op_threads`: how many threads run a model's operations.

The threads of single operations belong to the process, and TensorFlow starts them once, before anything else runs. The
threads on which operations run side by side belong to the sessions.

An Estimator's steps check for a signal whose exception was dropped (`schemas.interrupts`).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from schemas import interrupts
from schemas.errors import UsageError


def with_interrupts(spec: Any) -> Any:
    """Adds `CheckInterrupts` to an `EstimatorSpec`, for training, evaluation and prediction."""
    kinds = ("training_hooks", "evaluation_hooks", "prediction_hooks")
    return spec._replace(**{kind: [CheckInterrupts(), *getattr(spec, kind)] for kind in kinds})


class CheckInterrupts(tf.compat.v1.train.SessionRunHook):
    """Raises a dropped exception before the next step."""

    def before_run(self, run_context: Any) -> None:
        interrupts.check()


def set_threads(*, inter_op: int | None, intra_op: int | None) -> None:
    """Sets the threads of this process, before TensorFlow runs anything; None leaves a number as it is.

    Raises:
      UsageError: TensorFlow runs already, with other numbers.
    """
    try:
        if inter_op is not None:
            tf.config.threading.set_inter_op_parallelism_threads(inter_op)
        if intra_op is not None:
            tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    except RuntimeError:
        raise UsageError(
            "--inter_op_threads, --intra_op_threads: TensorFlow has started its threads in this process; set the "
            "numbers in a new process, or leave them out"
        ) from None


def with_threads(config: Any, *, inter_op: int | None, intra_op: int | None) -> Any:
    """The same `RunConfig`, whose sessions have these threads.

    Raises:
      UsageError: as above.
    """
    if inter_op is None and intra_op is None:
        return config
    set_threads(inter_op=inter_op, intra_op=intra_op)
    session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    if config.session_config is not None:
        session.CopyFrom(config.session_config)
    session.inter_op_parallelism_threads = inter_op or 0
    session.intra_op_parallelism_threads = intra_op or 0
    return config.replace(session_config=session)
