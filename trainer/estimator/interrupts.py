"""An Estimator's steps check for a signal whose exception was dropped (`schemas.interrupts`)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from schemas import interrupts


def with_interrupts(spec: Any) -> Any:
    """Adds `CheckInterrupts` to an `EstimatorSpec`, for training, evaluation and prediction."""
    kinds = ("training_hooks", "evaluation_hooks", "prediction_hooks")
    return spec._replace(**{kind: [CheckInterrupts(), *getattr(spec, kind)] for kind in kinds})


class CheckInterrupts(tf.compat.v1.train.SessionRunHook):
    """Raises a dropped exception before the next step."""

    def before_run(self, run_context: Any) -> None:
        interrupts.check()
