"""The records of a split, read once more in the order of an evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import OpenDataset

BATCH, IMAGE_BATCH = 4096, 64  # records that are read together


def stored_batches(
    dataset: OpenDataset, split: str, spec: Mapping[str, Any], *, rows: int = -1
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of a split's records batch by batch, `[batch, ...]` by name.

    Args:
      dataset: the dataset.
      split: the split.
      spec: which features, as `tf.io.parse_example` takes them.
      rows: how many records are read; -1: all.
    """
    batches = _shards(dataset, split).take(rows).batch(_batch_size(dataset))
    yield from batches.map(lambda batch: tf.io.parse_example(batch, spec)).prefetch(1).as_numpy_iterator()


def read_records(dataset: OpenDataset, split: str, places: Collection[int]) -> dict[int, bytes]:
    """Reads single records of a split by their places, which count from 0 over all its shards."""
    records: dict[int, bytes] = {}
    first = 0
    for batch in _shards(dataset, split).take(max(places, default=-1) + 1).batch(_batch_size(dataset)):
        records |= {place: batch[place - first].numpy() for place in places if first <= place < first + len(batch)}
        first += len(batch)
    return records


def _shards(dataset: OpenDataset, split: str) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression)


def _batch_size(dataset: OpenDataset) -> int:
    return BATCH if dataset.image_schema is None else IMAGE_BATCH


def shard_of(dataset: OpenDataset, split: str, place: int) -> tuple[str, int]:
    """Returns the shard of a record, relative to the dataset directory, and the record's place in it, from 0 on."""
    for shard in dataset.manifest.splits[split].shards:
        if place < shard.rows:
            return shard.path, place
        place -= shard.rows
    raise IndexError(f"the split {split!r} has no row {place}")


def stored_values(serialized: bytes) -> dict[str, list[Any]]:
    """Returns the values of a record, by feature."""
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: list(getattr(x, x.WhichOneof("kind") or "int64_list").value) for name, x in features.items()}
