"""One training whose steps are fed in several ways in turn: from the dataset, from memory, ...

All ways train the same Estimator in the same session and differ only in where their batches come from: its input is a
switch between the iterators of several datasets, and a hook sets the switch before each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from trainer.profiling.device_time import full_trace
from trainer.strategies.run_config import without_notices

Batches = Callable[[], tf.data.Dataset]  # makes a dataset of (features, label) in the graph in which it is called


def from_memory(batches: Batches) -> Batches:
    """The first batch, repeated."""
    return lambda: batches().take(1).cache().repeat()


def train_in_turns(
    estimator: Any, ways: Mapping[str, Batches], turns: Iterable[str], *, traced: Iterable[str] = ()
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
