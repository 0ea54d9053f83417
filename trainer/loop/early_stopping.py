"""Early stopping, and how the tasks of a cluster learn that training has ended.

The chief removes `training_ended.json` when it starts, and writes it when it stops for any reason. Estimator's own
early-stopping hooks keep the signal in a model variable instead: a training that resumes from the checkpoint of a
stopped one then stops at once, and the evaluator of a cluster never sees the signal.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.storage.json_files import read_if_there
from trainer.loop.evaluations import steps_without_improvement
from trainer.model_dir.evaluations_json import read_evaluations

TRAINING_ENDED = "training_ended.json"


def mark_ended(model_dir: str, reason: str) -> None:
    """Records that training has ended, and why."""
    note = {"reason": reason, "time": dt.datetime.now(dt.timezone.utc).isoformat()}
    storage.write_bytes(layout.join(model_dir, TRAINING_ENDED), json.dumps(note).encode() + b"\n")


def read_ended(model_dir: str) -> dict[str, str] | None:
    """The `reason` and `time` at which training ended; None while training runs."""
    path = layout.join(model_dir, TRAINING_ENDED)
    return read_if_there(path, "why the training ended")


def clear_ended(model_dir: str) -> None:
    """Removes the record of an earlier training."""
    path = layout.join(model_dir, TRAINING_ENDED)
    if storage.exists(path):
        storage.delete(path)


class EarlyStopping(tf.compat.v1.train.SessionRunHook):
    """Ends the chief's training when no evaluation has improved for `patience` steps."""

    def __init__(
        self, model_dir: str, dataset: Dataset, *, patience: int, metric: str | None, check_every: int
    ) -> None:
        self._model_dir = model_dir
        self._dataset = dataset
        self._patience = patience
        self._metric = metric
        self._timer = tf.compat.v1.train.SecondOrStepTimer(every_steps=check_every)
        self._step: Any = None

    def begin(self) -> None:
        self._step = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_values.results
        if not self._timer.should_trigger_for_step(step):
            return
        self._timer.update_last_triggered_step(step)
        if self.decides(step):
            run_context.request_stop()

    def decides(self, step: int) -> bool:
        """Whether training is to end at this step, which it then notes."""
        # After resuming from an earlier checkpoint, evaluations of later steps belong to the discarded training.
        evaluations = [e for e in read_evaluations(self._model_dir) if e["global_step"] <= step]
        worse = steps_without_improvement(evaluations, self._dataset, metric=self._metric)
        if worse < self._patience:
            return False
        mark_ended(self._model_dir, f"no better evaluation for {worse:,} steps")
        return True


class StopWithChief(tf.compat.v1.train.SessionRunHook):
    """Ends a worker's training when the chief's has ended: when `training_ended.json` appears or changes."""

    def __init__(
        self, model_dir: str, *, every_secs: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._model_dir = model_dir
        self._every_secs = every_secs
        self._clock = clock
        self._next = 0.0
        self._first: dict[str, str] | None = None

    def begin(self) -> None:
        self._first = read_ended(self._model_dir)
        self._next = self._clock() + self._every_secs

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + self._every_secs
        mark = read_ended(self._model_dir)
        if mark is not None and mark != self._first:
            run_context.request_stop()
