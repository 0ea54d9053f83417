"""Reads the records of a split again, in the order in which an evaluation has read them."""

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
    """Yields the features of a split's records, batch by batch, as arrays `[batch, ...]` by feature name.

    Args:
      dataset: the dataset.
      split: the name of the split.
      spec: the features to parse, in the form of `tf.io.parse_example`'s `features`.
      rows: the number of records to read; -1 reads all records.
    """
    batches = _shards(dataset, split).take(rows).batch(_batch_size(dataset))
    yield from batches.map(lambda batch: tf.io.parse_example(batch, spec)).prefetch(1).as_numpy_iterator()


def read_records(dataset: OpenDataset, split: str, places: Collection[int]) -> dict[int, bytes]:
    """Reads single records of a split. A record's place counts from 0 over all shards of the split."""
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
    """Returns the path of a record's shard, relative to the dataset directory, and the record's place in that shard.

    Args:
      dataset: the dataset.
      split: the name of the split.
      place: the record's place in the split, counted from 0 over all shards.

    Raises:
      IndexError: the split has too few records.
    """
    for shard in dataset.manifest.splits[split].shards:
        if place < shard.rows:
            return shard.path, place
        place -= shard.rows
    raise IndexError(f"the split {split!r} has no row {place}")


def stored_values(serialized: bytes) -> dict[str, list[Any]]:
    """Parses a serialized `tf.train.Example`, and returns the list of values of each feature."""
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: list(getattr(x, x.WhichOneof("kind") or "int64_list").value) for name, x in features.items()}
