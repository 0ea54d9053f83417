"""Reads back the records of any of the writers, as a measured process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.tables import TABLES
from benchmarks.task import Task
from schemas.dataset import layout, open_dataset

IMAGE_LABELS = ("label", "image/class/label")
SHORTER = 256


def read(task: Task) -> Iterator[np.ndarray]:
    """The labels of all records in the folder `task.source`, whichever writer wrote them.

    Raises:
      ValueError: a record lacks a feature, or an image is not of the size that was asked for.
    """
    if list(Path(task.source).glob("*.tar")):
        from benchmarks.rivals import image_webdataset, rows_webdataset

        yield from (rows_webdataset if task.table else image_webdataset).read(task)
        return
    for batch in tf.data.TFRecordDataset(shards(task.source)).batch(256):
        yield _row_labels(batch, task.table) if task.table else _image_labels(batch)


def shards(folder: str) -> list[str]:
    """The TFRecord files of a folder; in a dataset directory, those that the manifest names."""
    if (Path(folder) / layout.MANIFEST).exists():
        dataset = open_dataset(folder)
        return [path for split in dataset.splits for path in dataset.shards(split)]
    return sorted(str(path) for path in Path(folder).rglob("*.tfrecord*"))


def _row_labels(batch: tf.Tensor, name: str) -> np.ndarray:
    table = TABLES[name]
    spec: dict[str, object] = {table.label: tf.io.FixedLenFeature([], tf.int64)}
    for feature, vector in table.numeric.items():
        if not isinstance(vector.how, tuple):  # writers store a bucket's number in different ways
            spec[feature] = tf.io.FixedLenFeature([len(vector.columns)], tf.float32)
    spec |= {feature: tf.io.FixedLenFeature([], tf.int64) for feature in table.one_hot}
    return tf.io.parse_example(batch, spec)[table.label].numpy()


def _image_labels(batch: tf.Tensor) -> np.ndarray:
    labels = []
    for serialized in batch.numpy():
        feature = tf.train.Example.FromString(serialized).features.feature
        encoded = next(feature[name].bytes_list.value[0] for name in ("image/encoded", "image") if name in feature)
        size = tf.io.decode_jpeg(encoded).shape
        if min(size[:2]) != SHORTER:
            raise ValueError(f"an image of {size}, and its shorter side must be {SHORTER}")
        labels.append(next(feature[n].int64_list.value[0] for n in IMAGE_LABELS if n in feature))
    return np.array(labels)
