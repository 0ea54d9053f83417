"""Reads a dataset's records from its shards."""

from __future__ import annotations

import collections

import tensorflow as tf

from schemas.dataset import Dataset


def records(dataset: Dataset, split: str) -> collections.Counter[bytes]:
    """The split's examples, as a multiset (protobuf writes an example's features in any order, so they are sorted)."""
    return collections.Counter(
        tf.train.Example.FromString(r.numpy()).SerializeToString(deterministic=True)
        for r in tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression)
    )


def examples(dataset: Dataset, split: str) -> list[dict[str, list]]:
    """The split's examples as plain values."""
    rows = []
    for record in tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        rows.append(
            {
                name: list(getattr(value, value.WhichOneof("kind")).value) if value.WhichOneof("kind") else []
                for name, value in features.items()
            }
        )
    return rows
