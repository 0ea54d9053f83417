"""Model inputs as feature columns: for linear models, and for deep ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.spec.task_spec import Dense, Ids, Input


def prepare(features: Mapping[str, Any], inputs: Sequence[Input]) -> dict[str, Any]:
    """Brings ids into the form that `linear_columns` and `deep_columns` read; the first op of a `model_fn`.

    A padded text `[batch, length]` loses its padding (becomes sparse). Ids `[batch, length]` that are of their own kind
    at each position get ranges of their own: position i counts from i * count.
    """
    prepared = dict(features)
    for entry in inputs:
        if not isinstance(entry, Ids) or entry.length in (None, 1):
            continue
        ids = tf.reshape(features[entry.name], [-1, entry.length])
        if entry.positional:
            prepared[entry.name] = ids + tf.range(entry.length, dtype=tf.int64) * entry.count
        else:
            prepared[entry.name] = tf.sparse.from_dense(ids)
    return prepared


def linear_columns(inputs: Sequence[Input]) -> list[Any]:
    """Columns with one weight for each number and for each id."""
    return [_dense(entry) if isinstance(entry, Dense) else _categorical(entry) for entry in inputs]


def deep_columns(inputs: Sequence[Input], *, indicator_limit: int, embedding_size: int) -> list[Any]:
    """Columns of dense values: numbers as they are, few ids as indicators (0 or 1 for each), many as embeddings.

    Args:
      indicator_limit: up to how many ids are indicators.
      embedding_size: of each embedding; 0 chooses by the number of ids (`embedding_size_for`).
    """
    columns = []
    for entry in inputs:
        if isinstance(entry, Dense):
            columns.append(_dense(entry))
        elif entry.count <= indicator_limit and (entry.length == 1 or entry.positional):
            columns.append(tf.feature_column.indicator_column(_categorical(entry)))
        else:
            size = embedding_size or embedding_size_for(entry.count)
            columns.append(tf.feature_column.embedding_column(_categorical(entry), size))
    return columns


def embedding_size_for(count: int) -> int:
    """The square root of the number of ids, within 4 and 64: a rule of thumb."""
    return min(64, max(4, math.ceil(math.sqrt(count))))


def _dense(entry: Dense) -> Any:
    return tf.feature_column.numeric_column(entry.name, shape=(entry.width,))


def _categorical(entry: Ids) -> Any:
    count = entry.count * (entry.length or 1) if entry.positional else entry.count
    return tf.feature_column.categorical_column_with_identity(entry.name, count)
