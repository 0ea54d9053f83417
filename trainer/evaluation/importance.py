"""How much a model relies on each feature: how much worse it gets when the feature's values are shuffled among rows.

Breiman, "Random Forests", Machine Learning 45, 2001; as `sklearn.inspection.permutation_importance`. All of it is one
call of `Estimator.predict`: each batch is the same rows with another feature shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.evaluation.predictions import ClassCollector, ValueCollector
from trainer.evaluation.slices import Part
from trainer.evaluation.watch import AnyCollector, add_batch, new_collector
from trainer.export.receivers import weight_name
from trainer.strategies.run_config import as_exported

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
LEAST_ROWS = 100


def groups_of(parts: Sequence[Part], whole: Sequence[str]) -> list[tuple[Part, ...]]:
    """Values that are shuffled together: a number, and the indicator that it was missing.

    Args:
      parts: the values that can be told apart.
      whole: all features; those without parts are shuffled as a whole.
    """
    every = [*parts, *(Part(name, None, name) for name in whole if name not in {part.feature for part in parts})]
    by_place = {(part.feature, part.column): part for part in every}
    indicators = {(part.feature, part.column): (f"{part.feature}_missing", part.column) for part in every}
    taken = {place for place in indicators.values() if place in by_place}
    return [
        tuple(by_place[place] for place in (own, indicators[own]) if place in by_place)
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
      Of each group: `feature`, `loss` (the mean loss with it shuffled, minus that without), its standard deviation
      `spread` over the repeats, and for classes `accuracy`, what the accuracy loses.
    """
    plan = [(), *(group for group in groups for _ in range(REPEATS))]

    def shuffled() -> tf.data.Dataset:
        def variant(number: tf.Tensor, features: Mapping[str, Any], order: tf.Tensor) -> dict[str, Any]:
            group = (number - 1) // REPEATS
            found = dict(features)
            for place, parts in enumerate(groups):
                for part in parts:
                    found[part.feature] = _either(tf.equal(group, place), found[part.feature], order, part.column)
            return found

        def variants(features: Mapping[str, Any], label: tf.Tensor) -> tf.data.Dataset:
            def one(number: tf.Tensor) -> dict[str, Any]:
                seeds = tf.stack([tf.constant(SEED, tf.int64), number])
                order = tf.argsort(tf.random.stateless_uniform(tf.shape(label)[:1], seeds))
                return variant(number, features, order)

            return tf.data.Dataset.range(len(plan)).map(one)

        return batch().take(1).flat_map(variants)

    labels = [label.numpy() for _, label in batch().take(1)]
    losses: list[float] = []
    accuracies: list[float] = []
    for predictions in predict(shuffled):
        collector = make()
        add_batch(collector, {"labels": labels[0], **predictions})
        kept = collector.kept
        finite = kept.loss[np.isfinite(kept.loss)]
        losses.append(float(np.mean(finite)) if len(finite) else float("nan"))
        if isinstance(collector, ClassCollector):
            accuracies.append(float(np.mean(kept.label == kept.predicted)))
    found = []
    for place, group in enumerate(groups):
        at = slice(1 + place * REPEATS, 1 + (place + 1) * REPEATS)
        worse = np.array(losses[at]) - losses[0]
        entry: dict[str, Any] = {"feature": group[0].name, "loss": float(worse.mean()), "spread": float(worse.std())}
        if accuracies:
            entry["accuracy"] = float(accuracies[0] - np.mean(accuracies[at]))
        found.append(entry)
    return sorted(found, key=lambda entry: -entry["loss"])


def _either(shuffle: tf.Tensor, value: Any, order: tf.Tensor, column: int | None) -> Any:
    """A feature's values, or with those of other rows, of one column or of all."""
    if isinstance(value, tf.SparseTensor):
        rows = tf.cast(tf.gather(tf.math.invert_permutation(order), value.indices[:, :1]), tf.int64)
        moved = tf.SparseTensor(tf.concat([rows, value.indices[:, 1:]], 1), value.values, value.dense_shape)
        return tf.cond(shuffle, lambda: tf.sparse.reorder(moved), lambda: value)
    if column is None:
        return tf.cond(shuffle, lambda: tf.gather(value, order), lambda: tf.identity(value))
    one = tf.one_hot(column, value.shape[1], on_value=True, off_value=False)
    return tf.cond(shuffle, lambda: tf.where(one, tf.gather(value, order), value), lambda: tf.identity(value))
