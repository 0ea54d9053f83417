"""Measures evaluations: takes in the predictions of each, and gives Estimator its metrics.

Terminal, files, TensorBoard and the report so have the metrics of one computation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.exports.model import CLASS_ID, PROBABILITIES, VALUE
from trainer.data.labels import positive_class
from trainer.evaluation.metrics import evaluation_metrics
from trainer.evaluation.predictions import Collector, Predictions, PredictionTarget
from trainer.export.outputs import classes_of
from trainer.export.receivers import weight_name


def target_of(dataset: OpenDataset, class_weights: Sequence[float] = ()) -> PredictionTarget:
    """What a dataset's models predict."""
    names = classes_of(dataset)
    return (
        PredictionTarget(tuple(names), positive_class(dataset, names), tuple(class_weights))
        if names
        else PredictionTarget()
    )


class Watch:
    """Takes in the predictions of each evaluation, and measures them.

    Args:
      dataset: whose models are evaluated.
      class_weights: those of the training.

    Attributes:
      last: the predictions of the last evaluation; None before the first one, and where the model gives none in EVAL.
    """

    def __init__(self, dataset: OpenDataset, class_weights: Sequence[float] = ()) -> None:
        self.dataset = dataset
        self.class_weights = class_weights
        self.last: Predictions | None = None

    @functools.cached_property
    def target(self) -> PredictionTarget:
        """What is predicted."""
        return target_of(self.dataset, self.class_weights)

    @property
    def positive_class(self) -> str | None:
        """The name of the class that binary metrics are of; None where the label has not two classes."""
        return self.target.names[self.target.positive] if self.target.binary else None

    def __call__(self, features: Any, labels: Any, predictions: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The hooks of an evaluation's graph, and its `eval_metric_ops`.

        Args:
          features: those of a batch, the weight among them.
          labels: those of a batch, `[batch]`.
          predictions: as `trainer.export.outputs` names them.
        """
        fetched = {name: predictions[name] for name in (PROBABILITIES, CLASS_ID, VALUE) if name in predictions}
        weight = weight_name(self.dataset)
        if weight is not None and isinstance(features, Mapping) and weight in features:
            fetched["weights"] = features[weight]
        hook = _PredictionsHook(self, {"labels": labels, **fetched})
        return [hook], hook.metrics()


class _PredictionsHook(tf.compat.v1.train.SessionRunHook):
    """Takes in labels, predictions and weights by name."""

    def __init__(self, watch: Watch, fetched: dict[str, tf.Tensor]) -> None:
        self._watch, self._fetched = watch, fetched
        self._collector = Collector(watch.target)

    def begin(self) -> None:
        """Forgets an evaluation before this one."""
        self._collector = Collector(self._watch.target)

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetched)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._collector.add(run_values.results)

    def end(self, session: Any) -> None:
        self._watch.last = self._collector.predictions

    def metrics(self) -> dict[str, Any]:
        """`eval_metric_ops` of all that was taken in: ops that ask for it when the evaluation ends."""
        names = [*evaluation_metrics(self._collector.predictions)]
        measured = tf.numpy_function(
            lambda: np.array([*evaluation_metrics(self._collector.predictions).values()]), [], tf.float64
        )
        measured.set_shape([len(names)])
        return {name: (measured[place], tf.no_op()) for place, name in enumerate(names)}
