"""The predictions of evaluations: taken in while Estimator evaluates, and measured; or made by PREDICT afterwards.

Terminal, files, TensorBoard and the report so have the metrics of one computation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.exports.model import CLASS_ID, PROBABILITIES, VALUE
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.data.labels import positive_class
from trainer.estimator import tf_estimator
from trainer.evaluation.metrics import evaluation_metrics
from trainer.evaluation.predictions import Collector, Predictions, PredictionTarget
from trainer.export.outputs import classes_of
from trainer.export.receivers import weight_name
from trainer.strategies.run_config import as_exported

ModeKeys = tf_estimator.ModeKeys


def target_of(dataset: OpenDataset, class_weights: Sequence[float] = ()) -> PredictionTarget:
    """Returns what a dataset's models predict."""
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
        """Returns the hooks of an evaluation's graph, and its `eval_metric_ops`.

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
        """Returns `eval_metric_ops` whose values are measured on all batches when the evaluation ends."""
        names = [*evaluation_metrics(self._collector.predictions)]
        measured = tf.numpy_function(
            lambda: np.array([*evaluation_metrics(self._collector.predictions).values()]), [], tf.float64
        )
        measured.set_shape([len(names)])
        return {name: (measured[place], tf.no_op()) for place, name in enumerate(names)}


def predictor(estimator: Any, checkpoint: str) -> Callable[[Callable[[], tf.data.Dataset]], Iterator[dict[str, Any]]]:
    """Returns a function from an `input_fn` to the predictions of its batches, by the names of an export's outputs."""

    def predict(read: Callable[[], tf.data.Dataset]) -> Iterator[dict[str, Any]]:
        exported = as_exported(estimator)
        batches: Iterator[dict[str, Any]] = exported.predict(
            read, checkpoint_path=checkpoint, yield_single_examples=False
        )
        return batches

    return predict


def predicted_again(
    estimator: Any, checkpoint: str, dataset: OpenDataset, split: str, reading: InputOptions, *, steps: int | None
) -> Predictions:
    """Predicts a split by a model that gives no predictions in EVAL, beside the labels, which are read once more.

    Args:
      estimator: one that `with_keys_and_classes` wraps.
      checkpoint: whose variables predict.
      dataset: the dataset.
      split: the split that is predicted.
      reading: how it is read, in batches of the same size as in the evaluation.
      steps: how many batches are predicted; None: all.
    """

    def read(mode: str) -> tf.data.Dataset:
        batches = input_fn(dataset, split, mode=mode, options=reading)
        return batches if steps is None else batches.take(steps)

    collector = Collector(target_of(dataset))
    weight = weight_name(dataset)
    truth: list[dict[str, Any]] = []  # of all rows first: between two predictions, the Estimator's graph is the default
    for features, labels in read(ModeKeys.EVAL):
        weights = {} if weight is None else {"weights": features[weight].numpy()}
        truth.append({"labels": labels.numpy(), **weights})
    predictions = predictor(estimator, checkpoint)(lambda: read(ModeKeys.PREDICT))
    for label_batch, predicted in zip(truth, predictions, strict=True):
        collector.add({**label_batch, **predicted})
    return collector.predictions
