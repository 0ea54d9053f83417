"""Hooks of a training: show progress, evaluate checkpoints, stop early, and record why the training ended."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas import storage
from schemas.command import digits, duration
from schemas.dataset import layout
from schemas.display import Display
from schemas.storage.json_files import read_if_there
from trainer.loop.plan import ended_early
from trainer.loop.profile import Phase, Stopwatch
from trainer.spec.options import TrainingPlan


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Shows a status line with the step, epoch, rates, loss and remaining time.

    The step and the loss are fetched from the session only when an update is due.

    Args:
      display: shows the status line.
      plan: the plan of the training.
      steps_an_epoch: the number of steps that read as many examples as the train split has.
      so_far: returns a text with the metric of the last evaluation.
    """

    def __init__(self, display: Display, plan: TrainingPlan, steps_an_epoch: float, so_far: Callable[[], str]) -> None:
        self._display, self._plan, self._steps_an_epoch, self._so_far = display, plan, steps_an_epoch, so_far
        self._fetches: Any = None
        self._runs = 0
        self._seconds = self._since = self._next = 0.0
        self._begun: tuple[float, int] | None = None  # the time and the step of the first update

    def begin(self) -> None:
        loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]  # Estimator adds its loss last
        self._fetches = {"step": tf.compat.v1.train.get_global_step(), "loss": loss}

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._next = time.monotonic() + self._display.every
        self._runs, self._seconds = 0, 0.0

    def before_run(self, run_context: Any) -> Any:
        self._since = time.monotonic()
        return tf.compat.v1.train.SessionRunArgs(self._fetches) if self._since >= self._next else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.monotonic()
        self._runs += 1
        self._seconds += now - self._since  # excludes evaluations, which run between two steps
        if run_values.results is None:
            return
        rate = self._runs / max(self._seconds, 1e-9)
        step = int(run_values.results["step"])
        self._display.update(
            f"step {step:,} of {self._plan.max_steps:,} (epoch {step / self._steps_an_epoch:.1f}), "
            f"{digits(rate)} steps/s, {rate * self._plan.batch_size:,.0f} examples/s, "
            f"loss {float(run_values.results['loss']):.4g}{self._so_far()}{self._left(now, step)}"
        )
        self._next = now + self._display.every
        self._runs, self._seconds = 0, 0.0

    def _left(self, now: float, step: int) -> str:
        """Returns an upper limit of the remaining time, including evaluations; '' before it can be estimated.

        Early stopping may end the training before that.
        """
        began, first = self._begun = self._begun or (now, step)
        if not first < step < self._plan.max_steps:  # the first steps of a training are much slower than the others
            return ""
        return f", at most {duration((now - began) / (step - first) * (self._plan.max_steps - step))} left"

    def end(self, session: Any) -> None:
        self._display.close()


TRAINING_ENDED = "training_ended.json"


def mark_ended(model_dir: str, reason: str) -> None:
    """Records in the model directory that the training has ended, and why."""
    note = {"reason": reason, "time": dt.datetime.now(dt.UTC).isoformat()}
    storage.write_bytes(layout.join(model_dir, TRAINING_ENDED), json.dumps(note).encode() + b"\n")


def read_ended(model_dir: str) -> dict[str, str] | None:
    """Returns the `reason` and `time` at which the training ended; None while it runs."""
    path = layout.join(model_dir, TRAINING_ENDED)
    return read_if_there(path, "why the training ended")


def clear_ended(model_dir: str) -> None:
    """Removes the record that an earlier training has ended."""
    path = layout.join(model_dir, TRAINING_ENDED)
    if storage.exists(path):
        storage.delete(path)


class AtCheckpoints(tf.compat.v1.train.CheckpointSaverListener):
    """Evaluates the checkpoints that a training saves, and ends the training when evaluations no longer improve.

    The first checkpoint is saved when the session starts, and is not evaluated.

    Args:
      plan: the plan of the training.
      stopwatch: measures `Phase.CHECKPOINTS` while a checkpoint is saved, until `ProfileSteps` sees the end of the
        step.
      evaluate: called with the path of each checkpoint; None: another process evaluates the checkpoints.
    """

    def __init__(self, plan: TrainingPlan, stopwatch: Stopwatch, evaluate: Callable[[str], Any] | None) -> None:
        self._plan, self._stopwatch, self._evaluate = plan, stopwatch, evaluate
        self._begun = False

    def before_save(self, session: Any, global_step_value: int) -> None:
        self._stopwatch.enter(Phase.CHECKPOINTS)

    def after_save(self, session: Any, global_step_value: int) -> bool:
        """Evaluates the checkpoint. Returns whether the training ends here, and records the reason if it does."""
        if not self._begun:
            self._begun = True
            return False
        if self._evaluate is not None:
            self._evaluate(tf.train.latest_checkpoint(self._plan.model_dir))
        reason = ended_early(self._plan, global_step_value)
        if reason is not None:
            mark_ended(self._plan.model_dir, reason)
        return reason is not None


class StopWithChief(tf.compat.v1.train.SessionRunHook):
    """Ends a worker's training when the chief has ended: when `training_ended.json` appears or changes."""

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
        """Every few seconds, checks whether the chief has ended, and then stops the training."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + self._every_secs
        mark = read_ended(self._model_dir)
        if mark is not None and mark != self._first:
            run_context.request_stop()
