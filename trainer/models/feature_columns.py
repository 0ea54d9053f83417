"""Model inputs as feature columns: for linear models, and for deep ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.models.compiled_columns import MeanEmbedding, MultiHot
from trainer.spec.task_spec import Dense, Ids, Input


def prepare(features: Mapping[str, Any], inputs: Sequence[Input], *, compiled: bool = False) -> dict[str, Any]:
    """Brings ids into the form that `linear_columns` and `deep_columns` read; the first op of a `model_fn`.

    A padded text `[batch, length]` loses its padding (becomes sparse). Ids `[batch, length]` that are of their own kind
    at each position get ranges of their own: position i counts from i * count.

    Args:
      features: by name.
      inputs: those that the model reads.
      compiled: for a step that XLA compiles (`trainer.strategies.tpu_cores.compiles_step`): nothing becomes sparse, and
        -1 stands for no id. Bags of ids come so from `trainer.data.host_features`.
    """
    prepared = dict(features)
    for entry in inputs:
        if not isinstance(entry, Ids) or entry.length in (None, 1):
            continue
        ids = tf.reshape(features[entry.name], [-1, entry.length])
        if entry.positional:
            prepared[entry.name] = ids + tf.range(entry.length, dtype=tf.int64) * entry.count
        elif compiled:
            prepared[entry.name] = tf.where(tf.equal(ids, 0), tf.constant(-1, tf.int64), ids)
        else:
            prepared[entry.name] = tf.sparse.from_dense(ids)
    return prepared


def linear_columns(inputs: Sequence[Input], *, compiled: bool = False) -> list[Any]:
    """Columns with one weight for each number and for each id. `compiled`: as in `prepare`."""
    ids = _occurrences if compiled else _categorical
    return [_dense(entry) if isinstance(entry, Dense) else ids(entry) for entry in inputs]


def deep_columns(
    inputs: Sequence[Input], *, indicator_limit: int, embedding_size: int, compiled: bool = False
) -> list[Any]:
    """Columns of dense values: numbers as they are, few ids as indicators (0 or 1 for each), many as embeddings.

    Args:
      inputs: what they read.
      indicator_limit: up to how many ids are indicators.
      embedding_size: of each embedding; 0 chooses by the number of ids (`embedding_size_for`).
      compiled: as in `prepare`. The variables and what is computed are the same.
    """
    columns = []
    for entry in inputs:
        if isinstance(entry, Dense):
            columns.append(_dense(entry))
        elif entry.count <= indicator_limit and (entry.length == 1 or entry.positional):
            indicator = tf.feature_column.indicator_column(_categorical(entry))
            columns.append(MultiHot(entry.name, indicator.name, _count(entry)) if compiled else indicator)
        else:
            size = embedding_size or embedding_size_for(entry.count)
            embedding = tf.feature_column.embedding_column(_categorical(entry), size)
            columns.append(MeanEmbedding(entry.name, embedding) if compiled else embedding)
    return columns


def embedding_size_for(count: int) -> int:
    """The square root of the number of ids, within 4 and 64: a rule of thumb."""
    return min(64, max(4, math.ceil(math.sqrt(count))))


def _dense(entry: Dense) -> Any:
    return tf.feature_column.numeric_column(entry.name, shape=(entry.width,))


def _categorical(entry: Ids) -> Any:
    return tf.feature_column.categorical_column_with_identity(entry.name, _count(entry))


def _occurrences(entry: Ids) -> Any:
    return MultiHot(entry.name, entry.name, _count(entry))


def _count(entry: Ids) -> int:
    """The number of ids, those of all positions together."""
    return entry.count * (entry.length or 1) if entry.positional else entry.count
