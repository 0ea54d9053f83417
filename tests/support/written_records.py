"""The records of datasets in their shards, those of parity, which a test may change, and summaries of trainings."""

from __future__ import annotations

import collections
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from schemas.dataset import OpenDataset, layout, open_dataset


def records(dataset: OpenDataset, split: str) -> collections.Counter[bytes]:
    """The split's examples, as a multiset: features in one order."""
    counts: collections.Counter[bytes] = collections.Counter()
    for record in tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression):
        example = tf.train.Example.FromString(record.numpy())
        counts[example.SerializeToString(deterministic=True)] += 1
    return counts


def examples(dataset: OpenDataset, split: str) -> list[dict[str, list]]:
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


def copy_of(dataset: OpenDataset, folder: Path) -> OpenDataset:
    """The same dataset in another place."""
    shutil.copytree(dataset.path, folder / "out")
    return open_dataset(str(folder / "out"))


def change_records(dataset: OpenDataset, name: str, record: int, change: Callable[[Any], None]) -> None:
    """Rewrites one record of a parity file; `change` is given its features."""
    path = layout.join(dataset.run_dir, name)
    examples = [tf.train.Example.FromString(r) for r in tf.compat.v1.io.tf_record_iterator(path)]
    change(examples[record].features.feature)
    with tf.io.TFRecordWriter(path) as writer:
        for example in examples:
            writer.write(example.SerializeToString())


def example(row: Mapping[str, Any]) -> bytes:
    """A serialized `tf.Example`: text and bytes as bytes, numbers as floats; a list is several values."""
    features = {}
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], str | bytes):
            texts = [v.encode() if isinstance(v, str) else v for v in values]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
        else:
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def flip_bit(path: Path) -> None:
    """Changes a bit in the middle of a file, whose size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
