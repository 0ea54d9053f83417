"""Measures a training: the stages of its input, and steps fed from the dataset and from memory.

All steps are of one Estimator in one session and differ only in where their batches come from: its input is a switch
between the iterators of several datasets, and a hook sets the switch before each step. How long an accelerator computes
in a step is read from TensorFlow's own trace of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from schemas import interrupts
from schemas.dataset import Dataset
from schemas.errors import UsageError
from trainer.data.input_fn import input_fn, is_held
from trainer.data.input_options import InputOptions
from trainer.doctor.diagnosis import Clock, Cost, Diagnosis, Length, Rounds, differences
from trainer.doctor.stages import (
    TO_DEVICE,
    TRAIN,
    WHOLE,
    accelerator,
    copies,
    made_ahead,
    measured,
    prefixes,
    settings,
)
from trainer.loop.building import build_estimator
from trainer.spec.options import TrainingPlan
from trainer.strategies.run_config import check_shared, replicas_of, run_config, without_notices

DATA, MEMORY = "from the dataset", "from memory"
TRACED_STEPS = 5
_KERNELS = "/stream:all"  # of a GPU: the kernels of all its streams; /memcpy has the copies
Batches = Callable[[], tf.data.Dataset]  # makes a dataset of (features, label) in the graph in which it is called


def examine(
    dataset: Dataset,
    options: TrainingPlan,
    length: Length,
    tell: Callable[[str], None],
    *,
    folder: str,
    clock: Clock,
) -> Diagnosis:
    """Measures for about `length.seconds`, one half the input alone, one half training. Writes only to `folder`.

    Raises:
      UsageError: an unknown model or hyper-parameter, or a model for other data.
      MillraceError: the model failed.
    """
    if options.strategy == "multi_worker":
        raise UsageError("--strategy multi_worker: the doctor examines one process; leave the strategy out")
    half = dataclasses.replace(length, seconds=length.seconds / 2)
    how = measured(dataset, options)
    config = run_config(options, os.path.join(folder, "model"), save_checkpoints_steps=None, save_checkpoints_secs=None)
    replicas = replicas_of(config)
    check_shared(how.batch_size, replicas)
    estimator = build_estimator(dataset, options, config)  # first: reports invalid usage at once
    costs, short = measure_input(dataset, how, half, tell, clock)
    shared = dataclasses.replace(how, batch_size=how.batch_size // replicas)

    def batches() -> tf.data.Dataset:
        return input_fn(dataset, "train", mode=TRAIN, options=shared)

    ways = {DATA: batches, MEMORY: lambda: batches().take(1).cache().repeat()}
    ahead = {DATA: made_ahead(dataset, how)}
    rounds = Rounds(tuple(ways), half, ahead=ahead, tell=lambda text: tell(f"training, {text}"), clock=clock)
    device = accelerator()
    traces = train_in_turns(estimator, ways, rounds, traced=[DATA] * (TRACED_STEPS if device is not None else 0))
    steps = rounds.medians()
    to_device = costs.pop(TO_DEVICE, None)
    stages = differences(costs)
    return Diagnosis(
        batch_size=how.batch_size,
        training=steps[DATA],
        memory=steps[MEMORY],
        alone=costs[WHOLE],
        stages=stages,
        settings={name: found for name, found in settings(dataset, how).items() if name in stages and found},
        to_device=None if to_device is None else to_device.beyond(costs[WHOLE]),
        busy=None if device is None else busy_seconds(traces, device[device.index("/device:") :]),
        held=is_held(dataset, "train", how),
        short=short,
    )


def measure_input(
    dataset: Dataset, options: InputOptions, length: Length, tell: Callable[[str], None], clock: Clock
) -> tuple[dict[str, Cost], bool]:
    """Measures a batch up to the end of each stage, and on the accelerator if there is one.

    Returns:
      The costs by stage, and whether turns were too short to use up prefetched batches.
    """
    steps: dict[str, Callable[[], object]] = {}
    for name, batches in prefixes(dataset, options).items():
        steps[name] = iter(batches).__next__
    device = accelerator()
    if device is not None:
        steps[TO_DEVICE] = copies(dataset, options, device)
    ahead = dict.fromkeys(steps, made_ahead(dataset, options))
    rounds = Rounds(tuple(steps), length, ahead=ahead, tell=lambda text: tell(f"input alone, {text}"), clock=clock)
    for name in rounds:
        interrupts.check()
        steps[name]()
    return rounds.medians(), bool(rounds.hurried())


def train_in_turns(
    estimator: Any, ways: Mapping[str, Batches], turns: Iterable[str], *, traced: Iterable[str]
) -> list[Any]:
    """Trains an Estimator for as long as the measurement takes.

    Args:
      estimator: the Estimator; its config says whether it writes checkpoints.
      ways: by name; all give features and labels of the same types.
      turns: the way that feeds each step, such as `Rounds`, which measures the steps as it goes.
      traced: likewise, of further steps at the end, of which TensorFlow records what ran when; these take longer.

    Returns:
      The `StepStats` of the traced steps.
    """
    hook = _InTurns(ways, turns, traced)
    with without_notices():
        estimator.train(hook.input_fn, hooks=[hook])
    return hook.traces


class _InTurns(tf.compat.v1.train.SessionRunHook):
    """Builds the switch, and sets it before each step."""

    def __init__(self, ways: Mapping[str, Batches], turns: Iterable[str], traced: Iterable[str]) -> None:
        self.traces: list[Any] = []
        self._ways = dict(ways)
        self._turns = itertools.chain(((way, False) for way in turns), ((way, True) for way in traced))
        self._way, self._traced = "", False
        self._switch: Any = None
        self._initializers: list[Any] = []

    def input_fn(self, input_context: Any = None) -> Any:
        """(features, label) of the way that the switch selects; for a strategy, a function that each replica calls."""
        self._switch = tf.compat.v1.placeholder_with_default(0, [], "way")
        iterators = [tf.compat.v1.data.make_initializable_iterator(batches()) for batches in self._ways.values()]
        self._initializers = [iterator.initializer for iterator in iterators]
        gets = [iterator.get_next for iterator in iterators]

        def selected() -> tuple[Any, Any]:
            return tf.switch_case(self._switch, gets)

        return selected() if input_context is None else selected

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializers)
        self._way, self._traced = next(self._turns)

    def before_run(self, run_context: Any) -> Any:
        place = list(self._ways).index(self._way)
        how = full_trace() if self._traced else None
        return tf.compat.v1.train.SessionRunArgs(None, feed_dict={self._switch: place}, options=how)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._traced:
            self.traces.append(run_values.run_metadata.step_stats)
        following = next(self._turns, None)
        if following is None:
            run_context.request_stop()
        else:
            self._way, self._traced = following


def full_trace() -> Any:
    """The options of a step of which TensorFlow records when each operation ran, and where."""
    return tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)


def busy_seconds(traces: Sequence[Any], device: str) -> float | None:
    """The mean time of a step in which a device computed; copies to and from it do not count.

    Args:
      traces: the `StepStats` of steps, or their `RunMetadata.step_stats`.
      device: the end of the device's name, such as /device:GPU:0.

    Returns:
      Seconds of a step; None if no trace tells of the device.
    """
    found = [_kernels(trace, device) for trace in traces]
    if not any(found):
        return None
    return sum(_covered(kernels) for kernels in found) / len(found) / 1e6


def _kernels(trace: Any, device: str) -> list[tuple[int, int]]:
    """When kernels began and ended, in microseconds: of a GPU those on its streams, of a CPU all operations."""
    devices = {stats.device: stats.node_stats for stats in trace.dev_stats}
    names = [name for name in devices if name.endswith(device + _KERNELS)]
    names = names or [name for name in devices if name.endswith(device) and "CPU" in device]
    nodes = (node for name in names for node in devices[name])
    return [
        (node.all_start_micros + node.op_start_rel_micros, node.all_start_micros + node.op_end_rel_micros)
        for node in nodes
    ]


def _covered(intervals: Iterable[tuple[int, int]]) -> int:
    """The length of the union of intervals."""
    covered, reached = 0, 0
    for begin, end in sorted(intervals):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
