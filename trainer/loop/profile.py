"""Measures where the time of a training goes, for `millrace train --profile`, and suggests a setting to try first.

A `Stopwatch` is in exactly one phase at any moment, so the times of its phases add up to the whole time. The graph
itself measures how long a step waits for its batch: it takes a timestamp before and after getting the batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import tensorflow as tf

from schemas import storage
from schemas.dataset import OpenDataset
from trainer.data.input_fn import is_held
from trainer.data.input_options import input_options, shuffle_rows
from trainer.estimator import tf_estimator
from trainer.loop.plan import MOST_BETWEEN
from trainer.spec.options import TrainingPlan


class Phase(enum.StrEnum):
    """A part of a training's time, with its meaning in words. The table shows the phases in this order."""

    START = "start", "TensorFlow starts, graphs are built, and the first step optimizes its graph"
    INPUT = "input", "steps wait for their batch"
    STEPS = "steps", "the model computes and learns"
    CHECKPOINTS = "checkpoints", "the model's variables are saved"
    EVALUATIONS = "evaluations", "checkpoints are evaluated"
    EXPORTS = "exports", "SavedModels are written and checked"
    REPORTS = "reports", "model reports are written"
    REST = "rest", "everything else"
    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        phase = str.__new__(cls, value)
        phase._value_ = value  # private: the documentation of enum sets it, too
        phase.meaning = meaning
        return phase


FIRST_TRACED, TRACED_STEPS = 10, 10  # the first steps are not typical, and are not traced


class Stopwatch:
    """Adds up the seconds of each phase of a training. It starts in `Phase.START`.

    Args:
      began: the clock's time when the training began; None: now.
      clock: returns the time in seconds.
    """

    def __init__(self, began: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = dict.fromkeys(Phase, 0.0)
        self._clock, self._phase = clock, Phase.START
        self._since = clock() if began is None else began

    def enter(self, phase: Phase) -> Phase:
        """Ends the current phase and begins another. Returns the phase that ended."""
        now, ended = self._clock(), self._phase
        self.seconds[ended] += now - self._since
        self._phase, self._since = phase, now
        return ended

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Enters a phase for the duration of a `with` block, then returns to the phase before it."""
        outer = self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer)

    def move(self, seconds: float, *, source: Phase, target: Phase) -> None:
        """Moves seconds from one phase to another, at most as many as the first one has."""
        seconds = min(max(seconds, 0.0), self.seconds[source])
        self.seconds[source] -= seconds
        self.seconds[target] += seconds


class ProfileSteps(tf.compat.v1.train.SessionRunHook):
    """Divides the time of steps between input and model, and traces a few steps for TensorBoard.

    Args:
      stopwatch: during a step, it is in `Phase.STEPS` (in `Phase.START` for the first step); after the step, it is in
        `Phase.REST`.
      trace_dir: the folder in which TensorFlow writes the trace, below `plugins/profile`.
    """

    def __init__(self, stopwatch: Stopwatch, trace_dir: str) -> None:
        self._stopwatch, self._trace_dir = stopwatch, trace_dir
        self._initializer: Any = None
        self._waited: Any = None
        self._tracing = False
        self.steps = 0
        self.has_trace = False

    @property
    def _phase(self) -> Phase:
        return Phase.STEPS if self.steps else Phase.START

    def timed(self, batches: tf.data.Dataset) -> Any:
        """Returns the next (features, label) of a dataset as tensors.

        Each step measures how long these tensors take to arrive.
        """
        iterator = tf.compat.v1.data.make_initializable_iterator(batches)
        self._initializer = iterator.initializer
        # The control dependencies enforce the order: first timestamp, batch, second timestamp.
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            batch = iterator.get_next()
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            self._waited = tf.timestamp() - began
        return batch

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)
        self._stopwatch.enter(Phase.START)  # the first checkpoint is saved before this

    def before_run(self, run_context: Any) -> Any:
        """Starts the trace at step `FIRST_TRACED`, and fetches the time that the step waits for its batch."""
        if self.steps == FIRST_TRACED:
            tf.profiler.experimental.start(self._trace_dir)
            self._tracing = self.has_trace = True
        self._stopwatch.enter(self._phase)
        return tf.compat.v1.train.SessionRunArgs(self._waited)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Moves the time that the step waited for its batch from the step's phase to `Phase.INPUT`."""
        self._stopwatch.enter(Phase.REST)
        self._stopwatch.move(float(run_values.results), source=self._phase, target=Phase.INPUT)
        self.steps += 1
        if self.steps == FIRST_TRACED + TRACED_STEPS:
            self.close()

    def close(self) -> None:
        """Writes the trace, if one is being made."""
        if self._tracing:
            self._tracing = False
            tf.profiler.experimental.stop()


@dataclasses.dataclass(frozen=True)
class Profile:
    """The time that each phase of a training took, and a suggestion.

    Attributes:
      seconds: the seconds of each phase, which add up to the whole time.
      steps: the number of steps.
      trace_dir: the folder to open in TensorBoard; None: there were too few steps for a trace.
      advice: a sentence with the setting to try first, and why; None: no setting is known to help.
    """

    seconds: Mapping[Phase, float]
    steps: int
    trace_dir: str | None
    advice: str | None

    def lines(self) -> list[str]:
        """Returns the table of phases and the suggestion, line by line."""
        whole = sum(self.seconds.values())
        table = [
            f"  {phase:<12}{seconds:>9.2f} s{seconds / whole:>6.0%}  {phase.meaning}"
            for phase, seconds in self.seconds.items()
        ]
        lines = ["where the time went:", *table, f"  {'in all':<12}{whole:>9.2f} s"]
        if self.steps:
            wait, step = (1e3 * self.seconds[phase] / self.steps for phase in (Phase.INPUT, Phase.STEPS))
            lines.append(f"A step took {wait + step:.2f} ms: it waited {wait:.2f} ms, and computed for {step:.2f} ms.")
        if self.trace_dir is not None:
            lines.append(f"A trace of {TRACED_STEPS} steps for TensorBoard (pip install xprof) is in {self.trace_dir}.")
        none = "No setting is known to make this training faster."
        return [*lines, none if self.advice is None else f"Most worth trying: {self.advice}"]


def advise(dataset: OpenDataset, plan: TrainingPlan, seconds: Mapping[Phase, float], *, has_gpu: bool) -> str | None:
    """Returns the setting that is most worth trying; None if no setting is known to help.

    It is the setting for the longest phase, among the phases for which there is a setting.

    Args:
      dataset: the training data.
      plan: the training that was measured.
      seconds: the seconds of each phase.
      has_gpu: whether the training ran on a GPU.
    """
    every = plan.save_checkpoints_steps
    rarer = min(3 * every, plan.early_stopping_steps or MOST_BETWEEN)
    advice: dict[Phase, str] = {}
    if reading := next(_settings_of_input(dataset, plan), ""):
        advice[Phase.INPUT] = reading
    if has_gpu:  # on a CPU neither larger batches nor bfloat16 made examples cheaper
        size = 4 * plan.batch_size
        advice[Phase.STEPS] = f"--batch_size {size}: a larger batch costs less for each example, if it fits the GPU."
    if rarer > every:
        advice[Phase.EVALUATIONS] = f"--save_checkpoints_steps {rarer} evaluates less often."
    if not plan.no_report:
        advice[Phase.REPORTS] = "--no_report writes no report; `millrace evaluate` writes one later."
    measured = [phase for phase in advice if seconds[phase]]
    return advice[max(measured, key=lambda phase: seconds[phase])] if measured else None


def _settings_of_input(dataset: OpenDataset, plan: TrainingPlan) -> Iterator[str]:
    """Suggests changes that make the input cheaper. Changes that keep the data and the model as they are come first."""
    options = input_options(dataset, plan, split="train", mode=tf_estimator.ModeKeys.TRAIN)
    usual = dataclasses.replace(options, shuffle_buffer=shuffle_rows(dataset, "train", None))
    in_memory = is_held(dataset, "train", options)
    if not in_memory and is_held(dataset, "train", usual):
        yield "leave out --shuffle_buffer, so that memory holds the split."
    if not storage.is_local(dataset.path) and plan.cache_dir is None:
        yield "--cache_dir millrace-cache keeps copies of the shards on local disk."
    if options.deterministic:
        yield "leave out --deterministic, which reads more slowly."
    if in_memory:
        return
    if dataset.image_schema is not None and dataset.image_schema.images.store == "jpeg":
        yield "write the dataset with `store: raw` below `images:` in its schema: nothing is decoded then."
    if dataset.compression:
        yield "write the dataset with --compression none: nothing is decompressed then."
