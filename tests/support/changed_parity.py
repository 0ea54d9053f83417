"""Datasets whose parity records are changed, as a skew would."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset, layout, open_dataset


def copy_of(dataset: Dataset, folder: Path) -> Dataset:
    """The same dataset in another place."""
    shutil.copytree(dataset.path, folder / "out")
    return open_dataset(str(folder / "out"))


def change_records(dataset: Dataset, name: str, record: int, change: Callable[[Any], None]) -> None:
    """Rewrites one record of a parity file; `change` is given its features."""
    path = layout.join(dataset.run_dir, name)
    examples = [tf.train.Example.FromString(r) for r in tf.compat.v1.io.tf_record_iterator(path)]
    change(examples[record].features.feature)
    with tf.io.TFRecordWriter(path) as writer:
        for example in examples:
            writer.write(example.SerializeToString())
