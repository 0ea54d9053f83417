"""How much a model relies on each feature: by how much it gets worse when the feature's values are shuffled among rows.

Breiman, "Random Forests", Machine Learning 45, 2001; as `sklearn.inspection.permutation_importance`. All of it is one
call of `Estimator.predict`, whose batches are the same rows, each time with another feature shuffled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.spec.forms import Input
from trainer.evaluation.predictions import Predictions, PredictionTarget
from trainer.evaluation.slices import Part

ROWS = 2000
PREDICTIONS = 500_000  # rows that are predicted, of all features and repeats together
REPEATS = 3
SEED = 1  # of the shuffling
LEAST_ROWS = 100


def groups_of(parts: Sequence[Part], inputs: Iterable[Input]) -> list[tuple[Part, ...]]:
    """Returns what is shuffled together: a number and the indicator that it was missing; ids and their weights.

    Args:
      parts: the single values of features.
      inputs: all features; those without parts are shuffled as a whole.
    """
    weights = {entry.name: getattr(entry, "weights", None) for entry in inputs}
    divided = {part.feature for part in parts}
    whole = [Part(name, None, name) for name in (*weights, *weights.values()) if name and name not in divided]
    by_place = {(part.feature, part.column): part for part in (*parts, *whole)}
    beside = {(name, column): (weights.get(name) or f"{name}_missing", column) for name, column in by_place}
    followers = {place for place in beside.values() if place in by_place}
    return [
        tuple(by_place[place] for place in (leader, beside[leader]) if place in by_place)
        for leader in by_place
        if leader not in followers
    ]


def rows_for(groups: int, available: int) -> int:
    """Returns how many rows are shuffled: 2,000, fewer of many features; 0: there are too many features."""
    rows = min(ROWS, available, PREDICTIONS // (groups * REPEATS + 1))
    return rows if rows >= min(LEAST_ROWS, available) else 0


def importance(
    predict: Callable[[Callable[[], tf.data.Dataset]], Iterable[Mapping[str, Any]]],
    batch: tf.data.Dataset,
    groups: Sequence[tuple[Part, ...]],
    target: PredictionTarget,
) -> list[dict[str, Any]]:
    """Returns the importance of features, the highest first.

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
        yield from (values | _shuffled(values, group, order) for group in groups for order in orders)

    def read() -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(variants, output_signature=batch.element_spec[0])

    errors, accuracies = [], []
    for prediction in predict(read):
        predicted = Predictions.of_batch(target, {"labels": labels.numpy(), **prediction})
        mean = float(np.mean(predicted.loss[predicted.usable])) if predicted.usable.any() else math.nan
        errors.append(mean if target.names else math.sqrt(mean))
        accuracies.append(float(np.mean(predicted.label == predicted.predicted)))
    rises = np.reshape(errors[1:], (len(groups), REPEATS)) - errors[0]
    lost = accuracies[0] - np.reshape(accuracies[1:], (len(groups), REPEATS)).mean(axis=1)
    measure = "loss" if target.names else "root_mean_squared_error"
    entries = []
    for group, rise, accuracy in zip(groups, rises, lost, strict=True):
        entry = {"feature": group[0].name, measure: float(rise.mean()), "spread": float(rise.std())}
        entries.append({**entry, "accuracy": float(accuracy)} if target.names else entry)
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
