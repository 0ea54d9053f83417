"""Reads back the records of any of the writers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from benchmarks.candidates.photos_pillow import SHORTER
from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES
from schemas.dataset import layout, open_dataset


def read(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """The labels of all records in the folder `task.source`, whichever writer wrote them.

    Raises:
      ValueError: a photo does not have the size that was asked for.
    """
    for path in Path(task.source).glob("*.tar"):
        yield _tar_labels(path)
    for batch in tf.data.TFRecordDataset(shards(task.source)).batch(256):
        if task.table:
            label = TABLES[task.table].label
            yield tf.io.parse_example(batch, {label: tf.io.FixedLenFeature([], tf.int64)})[label].numpy()
        else:
            yield _photo_labels(batch)


def shards(folder: str) -> list[str]:
    """The TFRecord files of a folder; in a dataset directory, those that the manifest names."""
    if (Path(folder) / layout.MANIFEST).exists():
        dataset = open_dataset(folder)
        return [path for split in dataset.splits for path in dataset.shards(split)]
    return sorted(str(path) for path in Path(folder).rglob("*.tfrecord*"))


def _photo_labels(batch: tf.Tensor) -> np.ndarray:
    labels = []
    for serialized in batch.numpy():
        feature = tf.train.Example.FromString(serialized).features.feature
        check_size(next(feature[name].bytes_list.value[0] for name in ("image/encoded", "image") if name in feature))
        labels.append(next(feature[n].int64_list.value[0] for n in ("label", "image/class/label") if n in feature))
    return np.array(labels)


def _tar_labels(path: Path) -> np.ndarray:
    labels = []
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            data = file.read() if file else b""
            if member.name.endswith(".jpg"):
                check_size(data)
            else:
                labels.append(int(data))
    return np.array(labels)


def check_size(jpeg: bytes) -> None:
    """Decodes a photo, whose shorter side must be SHORTER."""
    with Image.open(io.BytesIO(jpeg)) as image:
        image.load()
        if min(image.size) != SHORTER:
            raise ValueError(f"a photo of {image.size}, and its shorter side must be {SHORTER}")
