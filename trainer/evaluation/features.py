"""What stored values of features are called, and how much a model relies on each feature.

A value is a word of a vocabulary, a column, a range, or a number in its raw unit. A transform is not run backwards: it
is measured on the pairs of raw and stored records that the job keeps. `z_score`, `min_max` and `scale` are straight
lines, which two pairs fix; `log` is one of log(1 + x).

A model relies on a feature as much as it gets worse when the feature's values are shuffled among rows. Breiman, "Random
Forests", Machine Learning 45, 2001; as `sklearn.inspection.permutation_importance`. All of it is one call of
`Estimator.predict`: a batch has the same rows many times, each time with another feature shuffled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset
from schemas.display import readable
from schemas.spec.features import Bool, Bucketize, Category, Feature, Numeric, OneHot, Text
from schemas.spec.forms import Ids, Input
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.evaluation.predictions import ClassCollector, ValueCollector
from trainer.evaluation.slices import MOST_VALUES, Part, Slicing, hashed, of_ids, of_numbers, parts_of, taken
from trainer.evaluation.watch import AnyCollector, add_batch, new_collector
from trainer.export.receivers import raw_example_spec, record_columns, weight_name
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values
from trainer.spec.task_spec import read_table_task_spec
from trainer.strategies.run_config import as_exported

_CLOSE = 1e-3  # of the spread of the raw values: how well a line must fit


Way = Callable[[float], float]


class Units:
    """The way back from stored numbers to raw ones, for each value of a numeric feature where it is known."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._ways: dict[tuple[str, int | None], Way] | None = None

    def raw(self, name: str, column: int | None, value: float) -> float:
        """A stored number as in the raw file; the stored one where no way back is known. `column`: of a vector."""
        if self._ways is None:
            self._ways = self._measured()
        return self._ways.get((name, column), lambda stored: stored)(value)

    def _measured(self) -> dict[tuple[str, int | None], Way]:
        features = {f.name: f for f in self._dataset.schema.inputs if isinstance(f, Numeric)}
        spec = tft.TFTransformOutput(self._dataset.graphs_dir).transformed_feature_spec()
        stored_spec = {n: spec[n] for n in features if n in spec and spec[n].dtype == tf.float32}
        if not stored_spec:
            return {}
        records = read_parity_records(self._dataset)
        columns = tuple(c for c in record_columns(self._dataset) if c.name in stored_spec)
        raw = graph_values(lambda s: tf.io.parse_example(s, raw_example_spec(columns)), records.raw)
        stored = graph_values(lambda s: tf.io.parse_example(s, stored_spec), records.transformed)
        ways: dict[tuple[str, int | None], Way] = {}
        for name in raw.keys() & stored.keys():
            before, after = np.asarray(raw[name]), np.asarray(stored[name])
            how = {"log": features[name].transform == "log", "clipped": features[name].clip is not None}
            vector = features[name].width > 1 and before.ndim == 2 and before.shape == after.shape
            for column in range(before.shape[1]) if vector else (None,):
                pair = (before, after) if column is None else (before[:, column], after[:, column])
                way = way_back(*pair, **how)
                if way is not None:
                    ways[name, column] = way
        return ways


def way_back(raw: Any, stored: Any, *, log: bool = False, clipped: bool = False) -> Way | None:
    """The function from stored to raw numbers; None where no line fits the pairs.

    Args:
      raw: raw numbers, `[records]`; NaN is missing.
      stored: what each became, `[records]`.
      log: whether the line is one of log(1 + raw).
      clipped: whether many raw numbers became the least or the greatest one, which then say nothing.
    """
    raw, stored = np.asarray(raw, np.float64).reshape(-1), np.asarray(stored, np.float64).reshape(-1)
    known = np.isfinite(raw) & np.isfinite(stored)
    raw, stored = raw[known], stored[known]
    if clipped and len(stored):
        inside = (stored > stored.min()) & (stored < stored.max())
        raw, stored = raw[inside], stored[inside]
    if len(raw) != len(stored) or len(raw) < 2 or np.ptp(stored) == 0:
        return None
    straight = np.log1p(raw) if log else raw
    low, high = np.argmin(stored), np.argmax(stored)
    slope = (straight[high] - straight[low]) / (stored[high] - stored[low])
    base = straight[low] - slope * stored[low]
    if not np.allclose(base + slope * stored, straight, rtol=0, atol=_CLOSE * np.ptp(straight)):
        return None
    return lambda value: float(np.expm1(base + slope * value) if log else base + slope * value)


class FeatureText:
    """The features of a CSV dataset that a model reads, in words.

    Attributes:
      inputs: the stored features by name, as `schemas.spec.forms` has them.
      parts: the values that can be told apart.
    """

    def __init__(self, dataset: Dataset) -> None:
        declared = {
            name: f for f in dataset.schema.inputs for name in (f.made if isinstance(f, Numeric) else (f.name,))
        }
        self._declared: dict[str, Feature] = declared
        self._output = tft.TFTransformOutput(dataset.graphs_dir)
        self._units = Units(dataset)
        self._words: dict[str, list[str]] = {}
        self.inputs = {entry.name: entry for entry in read_table_task_spec(dataset).inputs}
        self.parts = [part for entry in self.inputs.values() for part in parts_of(entry, declared.get(entry.name))]

    def readable(self) -> list[str]:
        """The features whose stored values can be read."""
        return [name for name, entry in self.inputs.items() if not hashed(entry, self._declared.get(name))]

    def texts(self, values: Mapping[str, Sequence[Any]]) -> dict[str, str]:
        """The readable features of a record, whose values are given by name; weighted ids by falling weight."""
        found = {}
        for name in self.readable():
            items = values.get(name)
            weights = values.get(getattr(self.inputs[name], "weights", None) or "")
            if items and weights:
                items = [item for _, item in sorted(zip(weights, items, strict=True), reverse=True)]
            if items is not None:
                found[name] = self.text(name, items)
        return found

    def text(self, name: str, value: Any) -> str:
        """A stored value of a feature, `[]` or `[n]`."""
        items = np.asarray(value).reshape(-1)
        if isinstance(self.inputs.get(name), Ids):
            return ", ".join(filter(None, (self._id_text(name, int(item)) for item in items)))
        columns = [None] if items.size == 1 else range(items.size)
        return ", ".join(self._number_text(name, c)(float(item)) for c, item in zip(columns, items, strict=True))

    def slicings(self, sample: Mapping[str, np.ndarray]) -> Iterator[Slicing]:
        """How each part divides rows.

        Args:
          sample: values of some rows, `[rows, ...]` by feature, from which the ranges of numbers are taken.
        """
        readable = set(self.readable())
        for part in self.parts:
            entry = self.inputs[part.feature]
            if part.feature not in sample or part.feature not in readable:
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
        if isinstance(feature, Category | Text) and getattr(feature, "hash_buckets", None) is None:
            words = self._vocabulary(name, feature)
            place = value - 1 if isinstance(feature, Text) else value  # 0 is padding
            return words[place] if 0 <= place < len(words) else "(other values)" if place >= 0 else ""
        if isinstance(feature, Numeric) and isinstance(feature.transform, Bucketize):
            return _range_text(feature.transform, value)
        return f"bucket {value}"

    def _vocabulary(self, name: str, feature: Category | Text) -> list[str]:
        if name not in self._words:
            listed = feature.listed if isinstance(feature, Category) else None
            found = self._output.vocabulary_by_name(name) if listed is None else listed
            self._words[name] = [w.decode(errors="replace") if isinstance(w, bytes) else w for w in found]
        return self._words[name]

    def _number_text(self, name: str, column: int | None) -> Callable[[float], str]:
        """How a stored number is written: as in the raw file, as far as its scale is known."""
        if isinstance(self._declared.get(name), Bool):
            return lambda value: "true" if value > 0.5 else "false"
        return lambda value: readable(self._units.raw(name, column, value), 5)


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
        found: Iterator[dict[str, Any]] = as_exported(estimator).predict(
            read, checkpoint_path=checkpoint, yield_single_examples=False
        )
        return found

    return predict


def predicted_again(
    estimator: Any, checkpoint: str, dataset: Dataset, split: str, options: InputOptions, *, steps: int | None
) -> AnyCollector:
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

    collector = new_collector(dataset)
    weight = weight_name(dataset)
    truth: list[dict[str, Any]] = []  # of all rows first: between two predictions, the Estimator's graph is the default
    for features, labels in read(ModeKeys.EVAL):
        weights = {} if weight is None else {"weights": features[weight].numpy()}
        truth.append({"labels": labels.numpy(), **weights})
    predictions = predictor(estimator, checkpoint)(lambda: read(ModeKeys.PREDICT))
    for known, predicted in zip(truth, predictions, strict=True):
        add_batch(collector, {**known, **predicted})
    return collector


ROWS = 2000
PREDICTIONS = 500_000  # rows that are predicted, of all features and repeats together
REPEATS = 3
SEED = 1  # of the shuffling
AT_ONCE, VALUES_AT_ONCE = 16_384, 16_000_000  # rows and values that are predicted in one batch
NO_GROUP = -2  # of what is never shuffled; -1 is the time when nothing is
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
    batch: Callable[[], tf.data.Dataset],
    groups: Sequence[tuple[Part, ...]],
    make: Callable[[], ClassCollector | ValueCollector],
) -> list[dict[str, Any]]:
    """The importance of features, the highest first.

    Args:
      predict: takes an `input_fn` and gives the predictions of each of its batches, arrays by name.
      batch: an `input_fn` of one batch: (features, labels) of the rows.
      groups: the features that are shuffled together.
      make: gives an empty collector.

    Returns:
      Of each group: `feature`; of classes `loss` (the mean log loss with it shuffled, minus that without) and
      `accuracy`, what the accuracy loses; of numbers `root_mean_squared_error`, by how much it rises; and `spread`, the
      standard deviation of the rise over the repeats.
    """
    count = 1 + REPEATS * len(groups)  # the rows as they are, and each group shuffled
    given, label = next(iter(batch().take(1)))
    rows, width = len(label), sum(math.prod(x.shape[1:]) for x in given.values())
    together = max(1, min(AT_ONCE // rows, VALUES_AT_ONCE // (rows * width)))

    def shuffled() -> tf.data.Dataset:
        @tf.autograph.experimental.do_not_convert
        def variants(numbers: tf.Tensor, features: Mapping[str, Any]) -> dict[str, Any]:
            def order(number: tf.Tensor) -> tf.Tensor:
                seed = tf.stack([tf.constant(SEED, tf.int64), number])
                return tf.argsort(tf.random.stateless_uniform([rows], seed))

            orders = tf.map_fn(order, numbers, fn_output_signature=tf.TensorSpec([rows], tf.int32))
            return _variants(features, groups, shuffle=(numbers - 1) // REPEATS, orders=orders)

        @tf.autograph.experimental.do_not_convert
        def of_batch(features: Mapping[str, Any], _: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.range(count).batch(together).map(lambda numbers: variants(numbers, features))

        return batch().take(1).flat_map(of_batch)

    labels = label.numpy()
    losses: list[float] = []
    accuracies: list[float] = []
    for predictions in predict(shuffled):
        for first in range(0, min(together, count - len(losses)) * rows, rows):
            collector = make()
            one = {name: values[first : first + rows] for name, values in predictions.items()}
            add_batch(collector, {"labels": labels, **one})
            kept = collector.kept
            finite = kept.loss[np.isfinite(kept.loss)]
            mean = float(np.mean(finite)) if len(finite) else math.nan
            losses.append(mean if isinstance(collector, ClassCollector) else math.sqrt(mean))
            if isinstance(collector, ClassCollector):
                accuracies.append(float(np.mean(kept.label == kept.predicted)))
    measure = "loss" if accuracies else "root_mean_squared_error"
    found = []
    for place, group in enumerate(groups):
        at = slice(1 + place * REPEATS, 1 + (place + 1) * REPEATS)
        worse = np.array(losses[at]) - losses[0]
        entry: dict[str, Any] = {"feature": group[0].name, measure: float(worse.mean()), "spread": float(worse.std())}
        if accuracies:
            entry["accuracy"] = float(accuracies[0] - np.mean(accuracies[at]))
        found.append(entry)
    return sorted(found, key=lambda entry: -entry[measure])


def _variants(
    features: Mapping[str, Any], groups: Sequence[tuple[Part, ...]], *, shuffle: tf.Tensor, orders: tf.Tensor
) -> dict[str, Any]:
    """The same rows n times, one below the other, each time with the values of one group in another order.

    Args:
      features: the rows, dense `[rows, ...]` or sparse.
      groups: the features, or columns of them, that are shuffled together.
      shuffle: the group that is shuffled each time, int64 `[n]`; -1: none.
      orders: int32 `[n, rows]`.
    """
    same = tf.broadcast_to(tf.range(tf.shape(orders)[1]), tf.shape(orders))
    places = {(part.feature, part.column): place for place, parts in enumerate(groups) for part in parts}
    divided = {feature for feature, column in places if column is not None}

    def by_column(x: tf.Tensor, moves: list[int]) -> tf.Tensor:
        """Each column in the order of its own: [n * rows, columns]."""
        moved = tf.equal(shuffle[:, tf.newaxis, tf.newaxis], tf.constant(moves, tf.int64))
        picked = tf.where(moved, orders[:, :, tf.newaxis], same[:, :, tf.newaxis])
        return tf.gather(tf.reshape(x, [-1]), tf.reshape(picked * len(moves) + tf.range(len(moves)), [-1, len(moves)]))

    # Single numbers are columns of one tensor: 1,000 tensors take 1,000 times as many ops.
    dense = {name: x for name, x in features.items() if not isinstance(x, tf.SparseTensor)}
    numbers = [name for name, x in dense.items() if x.shape.rank == 1 and x.dtype == tf.float32]
    found: dict[str, Any] = {}
    if numbers:
        together = by_column(
            tf.stack([features[name] for name in numbers], axis=1),
            [places.get((name, None), NO_GROUP) for name in numbers],
        )
        found = dict(zip(numbers, tf.unstack(together, len(numbers), axis=1), strict=True))
    for name, x in features.items():
        if name in found:
            continue
        if name in divided:
            found[name] = by_column(x, [places.get((name, column), NO_GROUP) for column in range(x.shape[1])])
            continue
        moved = tf.equal(shuffle, places.get((name, None), NO_GROUP))
        picked = tf.reshape(tf.where(moved[:, tf.newaxis], orders, same), [-1])
        found[name] = _rows_of_sparse(x, picked) if isinstance(x, tf.SparseTensor) else tf.gather(x, picked)
    return found


def _rows_of_sparse(x: tf.SparseTensor, rows: tf.Tensor) -> tf.SparseTensor:
    """`tf.gather` of a sparse matrix. `rows`: `[n]`."""
    values, columns = (
        tf.gather(tf.RaggedTensor.from_value_rowids(part, x.indices[:, 0], nrows=x.dense_shape[0]), rows)
        for part in (x.values, x.indices[:, 1])
    )
    indices = tf.stack([values.value_rowids(), columns.values], axis=1)
    shape = tf.stack([tf.size(rows, tf.int64), x.dense_shape[1]])
    return tf.SparseTensor(indices, values.values, shape)
