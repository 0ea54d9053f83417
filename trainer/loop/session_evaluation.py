"""Evaluates the checkpoints of a training with one graph in one session, which saves building them for each checkpoint.

`Estimator.evaluate` is used instead with a distribution strategy, on a TPU, or if a model has evaluation hooks of its
own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.images.summaries import summary_writer
from trainer.model_dir.session_graph import SessionGraph

Summary = tf.compat.v1.Summary
GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP


class SessionEvaluation:
    """Evaluates checkpoints of an Estimator, with the same results as `Estimator.evaluate`.

    Args:
      estimator: the Estimator.
      read: the `input_fn` for EVAL; takes Estimator's `params`.
      steps: the number of batches to evaluate; None: all.
      keep: whether to keep a session; only possible if the model runs on one device. False: use `Estimator.evaluate`.
    """

    def __init__(
        self,
        estimator: Any,
        read: Callable[[Mapping[str, Any]], tf.data.Dataset],
        steps: int | None,
        *,
        keep: bool = True,
    ) -> None:
        self._estimator = estimator
        self._read = read
        self._steps = steps
        self._graph: SessionGraph | None = None
        self._hooks: list[Any] = []
        self._in_session = keep

    def __call__(self, checkpoint: str) -> Mapping[str, Any]:
        """Evaluates a checkpoint.

        Returns the metrics by name, and `global_step`. The metrics are also written for TensorBoard.
        """
        if self._graph is None and self._in_session:
            self._build()
        if self._graph is None:
            metrics: Mapping[str, Any] = self._estimator.evaluate(
                self._read, steps=self._steps, checkpoint_path=checkpoint
            )
            return metrics
        self._graph.restore(checkpoint)
        with self._graph.session.graph.as_default():
            return self._evaluate(self._graph.session, *self._graph.fetches)

    def close(self) -> None:
        """Closes the session; the next evaluation makes a new one."""
        if self._graph is not None:
            self._graph.close()
            self._graph = None

    def _build(self) -> None:
        """Builds the graph and its session, but closes them if the model has evaluation hooks of another package."""
        self._graph = SessionGraph(self._estimator, tf_estimator.ModeKeys.EVAL, lambda: self._read({}), self._fetches)
        # Hooks of other packages may want to add ops to the graph, which is finished. This package's hooks do not.
        self._in_session = all(type(hook).__module__.startswith("trainer.") for hook in self._hooks)
        if not self._in_session:
            self.close()

    def _fetches(self, spec: Any) -> tuple[dict[str, Any], list[Any]]:
        """Returns the tensors of the metrics by name, and the ops that update the metrics with a batch."""
        self._hooks = list(spec.evaluation_hooks)
        metrics = dict(spec.eval_metric_ops or {})
        metrics.setdefault("loss", tf.compat.v1.metrics.mean(spec.loss))
        values = {name: _value(metric) for name, metric in metrics.items()}
        updates = [_update(metric) for metric in metrics.values()]
        return values | {GLOBAL_STEP: tf.compat.v1.train.get_global_step()}, updates

    def _evaluate(
        self, session: tf.compat.v1.Session, values: Mapping[str, Any], updates: Sequence[Any]
    ) -> Mapping[str, Any]:
        """Updates the metrics with each batch, calling the hooks as Estimator would, and writes the metrics."""
        for hook in self._hooks:
            hook.begin()
        fetches: dict[Any, Any] = {None: updates}
        for step in itertools.count():
            if step == self._steps:
                break
            context = tf.compat.v1.train.SessionRunContext(tf.compat.v1.train.SessionRunArgs(updates), session)
            hook_args = {hook: hook.before_run(context) for hook in self._hooks}
            try:
                results = session.run(
                    fetches | {hook: args.fetches for hook, args in hook_args.items() if args is not None}
                )
            except tf.errors.OutOfRangeError:
                break
            for hook in self._hooks:
                hook.after_run(context, tf.compat.v1.train.SessionRunValues(results.get(hook), None, None))
        metrics: dict[str, Any] = session.run(values)
        for hook in self._hooks:
            hook.end(session)
        writer = summary_writer(self._estimator.eval_dir())
        scalars = {name: value for name, value in metrics.items() if name != GLOBAL_STEP and not np.ndim(value)}
        tagged = [Summary.Value(tag=name, simple_value=float(value)) for name, value in sorted(scalars.items())]
        writer.add_summary(Summary(value=tagged), int(metrics[GLOBAL_STEP]))
        writer.flush()
        return metrics


def _value(metric: Any) -> Any:
    """Returns the value of a metric: the first part of TensorFlow 1's (value, update), or a Keras metric's result."""
    return metric[0] if isinstance(metric, tuple) else metric.result()


def _update(metric: Any) -> Any:
    """Returns the op that updates a metric with a batch."""
    return metric[1] if isinstance(metric, tuple) else metric.updates
