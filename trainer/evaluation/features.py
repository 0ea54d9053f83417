"""What stored values of features are called, and how much a model relies on each feature.

A value is a word of a vocabulary, a column, a range, or a number in its raw unit. A transform is not run backwards: raw
numbers are interpolated between those of the records that the job keeps raw and stored.

A model relies on a feature as much as it gets worse when the feature's values are shuffled among rows. Breiman, "Random
Forests", Machine Learning 45, 2001; as `sklearn.inspection.permutation_importance`. All of it is one call of
`Estimator.predict`, whose batches are the same rows, each time with another feature shuffled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.display import readable
from schemas.spec.features import Bool, Bucketize, Category, Feature, Numeric, OneHot
from schemas.spec.forms import Ids, Input
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.evaluation.predictions import Collector, Predictions, PredictionTarget
from trainer.evaluation.slices import MOST_VALUES, Part, Slicing, hashed, of_ids, of_numbers, parts_of, taken
from trainer.evaluation.watch import target_of
from trainer.export.receivers import raw_example_spec, record_columns, weight_name
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values
from trainer.spec.task_spec import read_table_task_spec
from trainer.strategies.run_config import as_exported


def raw_numbers(dataset: OpenDataset) -> dict[tuple[str, int | None], tuple[np.ndarray, np.ndarray]]:
    """Stored numbers, rising, beside the raw ones that they were, by feature and column (None: it has one).

    They are those of the records that the job keeps as they were read, and as they were stored.
    """
    spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    names = {f.name for f in dataset.schema.inputs if isinstance(f, Numeric)}
    stored_spec = {name: spec[name] for name in names & spec.keys() if spec[name].dtype == tf.float32}
    if not stored_spec:
        return {}
    records = read_parity_records(dataset)
    columns = tuple(c for c in record_columns(dataset) if c.name in stored_spec)
    raw = graph_values(lambda s: tf.io.parse_example(s, raw_example_spec(columns)), records.raw)
    stored = graph_values(lambda s: tf.io.parse_example(s, stored_spec), records.transformed)
    pairs = {}
    for name in raw.keys() & stored.keys():
        before, after = (np.asarray(values[name], np.float64) for values in (raw, stored))
        if before.shape != after.shape:
            continue
        width = before.shape[1] if before.ndim == 2 else 1
        before, after = before.reshape(-1, width), after.reshape(-1, width)
        for column in range(width):
            usable = np.isfinite(before[:, column]) & np.isfinite(after[:, column])
            order = np.argsort(after[usable, column], kind="stable")
            place = (name, column if width > 1 else None)
            pairs[place] = after[usable, column][order], before[usable, column][order]
    return pairs


class FeatureText:
    """The features of a CSV dataset that a model reads, in words.

    Attributes:
      inputs: the stored features by name, as `schemas.spec.forms` has them.
      parts: the values that can be told apart.
    """

    def __init__(self, dataset: OpenDataset) -> None:
        declared = {
            name: f for f in dataset.schema.inputs for name in (f.made if isinstance(f, Numeric) else (f.name,))
        }
        self._declared: dict[str, Feature] = declared
        self._output = tft.TFTransformOutput(dataset.graphs_dir)
        self._dataset = dataset
        self._words: dict[str, list[str]] = {}
        self.inputs = {entry.name: entry for entry in read_table_task_spec(dataset).inputs}
        self.parts = [part for entry in self.inputs.values() for part in parts_of(entry, declared.get(entry.name))]

    @functools.cached_property
    def _raw_numbers(self) -> dict[tuple[str, int | None], tuple[np.ndarray, np.ndarray]]:
        return raw_numbers(self._dataset)

    def slicings(self, sample: Mapping[str, np.ndarray]) -> Iterator[Slicing]:
        """How each part divides rows.

        Args:
          sample: values of some rows, `[rows, ...]` by feature, from which the ranges of numbers are taken.
        """
        for part in self.parts:
            entry = self.inputs[part.feature]
            if part.feature not in sample or hashed(entry, self._declared.get(part.feature)):
                continue
            if not isinstance(entry, Ids):
                values = taken(sample, part)
                yield of_numbers(part, values, self._number_text(part.feature, part.column))
            elif entry.count <= MOST_VALUES:
                yield of_ids(part, entry.count, lambda i, name=part.feature: self._id_text(name, i))  # type: ignore[misc]

    def _id_text(self, name: str, value: int) -> str:
        """What an id stands for."""
        feature = self._declared.get(name)
        if isinstance(feature, OneHot):
            return f"column {feature.refs[value]}" if value < feature.width else str(value)
        if isinstance(feature, Category):
            words = self._vocabulary(name, feature)
            return words[value] if 0 <= value < len(words) else "(other values)"
        if isinstance(feature, Numeric) and isinstance(feature.transform, Bucketize):
            return _range_text(feature.transform, value)
        return f"bucket {value}"

    def _vocabulary(self, name: str, feature: Category) -> list[str]:
        if name not in self._words:
            vocabulary = self._output.vocabulary_by_name(name) if feature.listed is None else feature.listed
            self._words[name] = [w.decode(errors="replace") if isinstance(w, bytes) else w for w in vocabulary]
        return self._words[name]

    def _number_text(self, name: str, column: int | None) -> Callable[[float], str]:
        """How a stored number is written: as the raw number between those of the kept records."""
        if isinstance(self._declared.get(name), Bool):
            return lambda value: "true" if value > 0.5 else "false"
        pairs = self._raw_numbers.get((name, column))
        if pairs is None or not len(pairs[0]):
            return lambda value: readable(value, 5)
        return lambda value: readable(float(np.interp(value, *pairs)), 5)


def _range_text(transform: Bucketize, value: int) -> str:
    if isinstance(transform.bucketize, int):
        return f"quantile {value + 1} of {transform.bucketize}"
    ends = [f"{x:g}" for x in transform.bucketize]
    if value == 0:
        return f"below {ends[0]}"
    return f"{ends[value - 1]} to {ends[value]}" if value < len(ends) else f"from {ends[-1]}"


ModeKeys = tf_estimator.ModeKeys


def predictor(estimator: Any, checkpoint: str) -> Callable[[Callable[[], tf.data.Dataset]], Iterator[dict[str, Any]]]:
    """A function from an `input_fn` to the predictions of its batches, as `with_keys_and_classes` names them."""

    def predict(read: Callable[[], tf.data.Dataset]) -> Iterator[dict[str, Any]]:
        batches: Iterator[dict[str, Any]] = as_exported(estimator).predict(
            read, checkpoint_path=checkpoint, yield_single_examples=False
        )
        return batches

    return predict


def predicted_again(
    estimator: Any, checkpoint: str, dataset: OpenDataset, split: str, options: InputOptions, *, steps: int | None
) -> Predictions:
    """The predictions of a model that gives none in EVAL: by PREDICT, beside the labels that are read once more.

    Args:
      estimator: one that `with_keys_and_classes` wraps.
      checkpoint: whose variables predict.
      dataset: the dataset.
      split: the split that is predicted.
      options: how it is read, in batches of the same size as in the evaluation.
      steps: how many batches are predicted; None: all.
    """

    def read(mode: str) -> tf.data.Dataset:
        batches = input_fn(dataset, split, mode=mode, options=options)
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


ROWS = 2000
PREDICTIONS = 500_000  # rows that are predicted, of all features and repeats together
REPEATS = 3
SEED = 1  # of the shuffling
LEAST_ROWS = 100


def groups_of(parts: Sequence[Part], inputs: Iterable[Input]) -> list[tuple[Part, ...]]:
    """Values that are shuffled together: a number, and the indicator that it was missing; ids and their weights.

    Args:
      parts: the values that can be told apart.
      inputs: all features; those without parts are shuffled as a whole.
    """
    weights = {entry.name: getattr(entry, "weights", None) for entry in inputs}
    whole = [name for name in (*weights, *weights.values()) if name and name not in {part.feature for part in parts}]
    every = [*parts, *(Part(name, None, name) for name in whole)]
    by_place = {(part.feature, part.column): part for part in every}
    beside = {
        (part.feature, part.column): (weights.get(part.feature) or f"{part.feature}_missing", part.column)
        for part in every
    }
    taken = {place for place in beside.values() if place in by_place}
    return [
        tuple(by_place[place] for place in (own, beside[own]) if place in by_place)
        for own in by_place
        if own not in taken
    ]


def rows_for(groups: int, available: int) -> int:
    """How many rows are shuffled: 2,000, fewer of many features; 0: there are too many features."""
    rows = min(ROWS, available, PREDICTIONS // (groups * REPEATS + 1))
    return rows if rows >= min(LEAST_ROWS, available) else 0


def importance(
    predict: Callable[[Callable[[], tf.data.Dataset]], Any],
    batch: tf.data.Dataset,
    groups: Sequence[tuple[Part, ...]],
    target: PredictionTarget,
) -> list[dict[str, Any]]:
    """The importance of features, the highest first.

    Args:
      predict: takes an `input_fn` and gives the predictions of each of its batches, arrays by name.
      batch: (features, labels) of the rows, as one batch.
      groups: the features that are shuffled together.
      target: what is predicted.

    Returns:
      Of each group: `feature`; of classes `loss` (the mean log loss with it shuffled, minus that without) and
      `accuracy`, what the accuracy loses; of numbers `root_mean_squared_error`, by how much it rises; and `spread`, the
      standard deviation of the rise over the repeats.
    """
    features, labels = next(iter(batch.take(1)))
    values = {
        name: tf.compat.v1.SparseTensorValue(x.indices.numpy(), x.values.numpy(), x.dense_shape.numpy())
        if isinstance(x, tf.SparseTensor)
        else x.numpy()
        for name, x in features.items()
    }
    rng = np.random.default_rng(SEED)
    orders = [rng.permutation(len(labels)) for _ in range(REPEATS)]

    def variants() -> Iterator[dict[str, Any]]:
        yield values
        for group in groups:
            for order in orders:
                yield values | _shuffled(values, group, order)

    def read() -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(variants, output_signature=batch.element_spec[0])

    losses, accuracies = [], []
    for prediction in predict(read):
        predicted = Predictions.of_batch(target, {"labels": labels.numpy(), **prediction})
        usable = predicted.take(predicted.usable)
        mean = float(np.mean(usable.loss)) if usable.rows else math.nan
        losses.append(mean if target.names else math.sqrt(mean))
        accuracies.append(float(np.mean(predicted.label == predicted.predicted)))
    measure = "loss" if target.names else "root_mean_squared_error"
    entries = []
    for place, group in enumerate(groups):
        at = slice(1 + place * REPEATS, 1 + (place + 1) * REPEATS)
        worse = np.array(losses[at]) - losses[0]
        entry: dict[str, Any] = {"feature": group[0].name, measure: float(worse.mean()), "spread": float(worse.std())}
        if target.names:
            entry["accuracy"] = float(accuracies[0] - np.mean(accuracies[at]))
        entries.append(entry)
    return sorted(entries, key=lambda entry: -entry[measure])


def _shuffled(values: Mapping[str, Any], group: tuple[Part, ...], order: np.ndarray) -> dict[str, Any]:
    """The features of a group with their rows, or one column of them, in another order."""
    shuffled: dict[str, Any] = {}
    for part in group:
        x = shuffled.get(part.feature, values[part.feature])
        if isinstance(x, tf.compat.v1.SparseTensorValue):
            rows = np.argsort(order)[x.indices[:, 0]]
            places = np.lexsort((x.indices[:, 1], rows))
            indices = np.stack([rows, x.indices[:, 1]], axis=1)[places]
            x = tf.compat.v1.SparseTensorValue(indices, x.values[places], x.dense_shape)
        elif part.column is None:
            x = x[order]
        else:
            x = x.copy()
            x[:, part.column] = x[order, part.column]
        shuffled[part.feature] = x
    return shuffled
