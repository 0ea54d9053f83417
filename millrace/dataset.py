"""The class `Dataset` of the Python API: what a dataset directory holds, its first records, batches for training."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import schemas.dataset
from schemas.dataset.records import RecordTable, read_records
from schemas.dataset.statistics import read_statistics
from schemas.errors import UsageError
from schemas.spec.loader import AnySchema

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class SplitSize:
    """The records and shards of a split."""

    rows: int
    shards: int


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """A dataset directory, opened by `Dataset.open`. `opened` is the `schemas.dataset.OpenDataset` behind it."""

    opened: schemas.dataset.OpenDataset

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, trust: bool = False) -> Dataset:
        """Opens the directory that `preprocess` wrote.

        Args:
          path: the directory, local or gs://.
          trust: load its graphs even if they can do more than compute.

        Raises:
          UsageError: there is no dataset.
          MillraceError: a file is missing, truncated or changed.
        """
        return cls(schemas.dataset.open_dataset(os.fspath(path), trust=trust))

    @property
    def path(self) -> str:
        """The directory."""
        return self.opened.path

    @property
    def schema(self) -> AnySchema:
        """The schema that it was written with."""
        return self.opened.declared

    @property
    def splits(self) -> Mapping[str, SplitSize]:
        """Rows and shards by split: 'train', 'eval', 'test'."""
        return {name: SplitSize(s.rows, len(s.shards)) for name, s in self.opened.manifest.splits.items()}

    def shards(self, split: str) -> tuple[str, ...]:
        """Returns the paths of a split's TFRecord files, in order.

        Raises:
          MillraceError: there is no such split.
        """
        return self.opened.shards(split)

    def head(self, n: int = 5, *, split: str = "train") -> RecordTable:
        """Reads the first `n` records of a split as they are stored. Imports no TensorFlow.

        Returns:
          A sequence of dicts by feature name that prints as a table. Images are `Image`s, shown as height x width.

        Raises:
          UsageError: `n` is less than 1.
          MillraceError: there is no such split, or a record is damaged.
        """
        if n < 1:
            raise UsageError(f"n={n}: must be 1 or more")
        return read_records(self.opened, split, n)

    @property
    def statistics(self) -> dict[str, Any]:
        """What the raw values of the records are like, by feature and split; docs/statistics.md describes the keys.

        Raises:
          UsageError: the dataset was written without statistics.
          MillraceError: they cannot be read.
        """
        return read_statistics(self.path)

    def as_tf_dataset(
        self,
        split: str,
        *,
        batch_size: int = 512,
        shuffle: bool = False,
        num_epochs: int | None = 1,
        drop_remainder: bool = False,
        seed: int | None = None,
    ) -> tf.data.Dataset:
        """Makes batches of (features, label), read as `train` reads them. Imports TensorFlow.

        Args:
          split: 'train', 'eval' or 'test'.
          batch_size: records per batch.
          shuffle: shuffle anew in each epoch, and crop and mirror images at random, as in training; otherwise records
            come in stored order, and images as in evaluation.
          num_epochs: passes over the split; None repeats forever.
          drop_remainder: drop a last batch that is not full, so that shapes are static.
          seed: the seed of the shuffle; None draws one.

        Returns:
          A `tf.data.Dataset` of (features, label): features by name, `[batch]`, `[batch, n]` or sparse; of images uint8
          `[batch, height, width, 3]`. The label is int64 `[batch]` (a class) or float32 `[batch]`.

        Raises:
          UsageError: a number is out of its range.
          MillraceError: there is no such split.
        """
        if batch_size < 1 or (num_epochs is not None and num_epochs < 1):
            raise UsageError(f"batch_size={batch_size}, num_epochs={num_epochs}: each must be 1 or more")
        self.opened.shards(split)
        from schemas.exports.session import quiet_logs
        from trainer.loop.plan import plan_training
        from trainer.spec.options import TrainOptions

        train_options = TrainOptions(data_dir=self.path, model_dir="", batch_size=batch_size, seed=seed)
        plan = plan_training(self.opened, train_options)
        with quiet_logs():
            from trainer.data.input_fn import ModeKeys, input_fn
            from trainer.data.input_options import input_options

            mode = ModeKeys.TRAIN if shuffle else ModeKeys.EVAL
            options = dataclasses.replace(
                input_options(self.opened, plan, split=split, mode=mode),
                batch_size=batch_size,
                num_epochs=num_epochs,
                drop_remainder=drop_remainder,
            )
            batches = input_fn(self.opened, split, mode=mode, options=options)
        return batches if shuffle or num_epochs else batches.repeat()

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {split.rows:,}" for name, split in self.splits.items())
        return f"<Dataset {self.schema.name} in {self.path}: {splits}>"
