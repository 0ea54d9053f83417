"""Derives the options of `input_fn` from a dataset and a training's options; says where reading begins."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from schemas.concurrency import available_memory
from schemas.dataset import OpenDataset
from trainer.estimator import tf_estimator
from trainer.spec.hparams import Augmentation, augmentation
from trainer.spec.options import TrainingPlan


@dataclasses.dataclass(frozen=True)
class Position:
    """The place in the sequence of epochs where reading begins.

    Attributes:
      epoch: the number of the epoch, from 0. The order of an epoch depends only on the seed and this number.
      record: how many records of that epoch are skipped, because they were read before.
    """

    epoch: int = 0
    record: int = 0

    def records(self, rows: int) -> int:
        """Returns the number of records before this place, if each epoch has `rows` records."""
        return self.epoch * rows + self.record

    def after(self, records: int, *, rows: int) -> Position:
        """Returns the place `records` records later, if each epoch has `rows` records."""
        epochs, record = divmod(self.record + records, rows)
        return Position(self.epoch + epochs, record)

    def next_epoch(self) -> Position:
        """Returns the beginning of the next epoch, or this place if it is the beginning of an epoch."""
        return Position(self.epoch + 1) if self.record else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How `input_fn` reads a split.

    Attributes:
      batch_size: examples in a batch.
      shuffle_buffer: how well records are shuffled in TRAIN, as the size of an equivalent shuffle buffer. Images that
        are not cached pass through a buffer of this size, which all open shards share. Rows are shuffled in windows of
        twice this size. 0: the records stay in the order in which they are read.
      cache_bytes: the most memory for a cached split in TRAIN. A CSV split whose parsed values take no more is cached
        and shuffled completely, unless `shuffle_buffer` is 0. If features are sparse, unparsed records are cached, and
        the bytes of the shards count, times `UNPACKED` if the shards are compressed. Images are cached decoded; their
        size is estimated from the first `MEASURED` records. `millrace train` sets this to `image_cache_bytes()` for
        images.
      num_epochs: passes over the split. None repeats forever in TRAIN, and means one pass in the other modes.
      cycle_length: the number of shards read in parallel in TRAIN.
      drop_remainder: drop a last batch that is not full, so that shapes are static.
      deterministic: in TRAIN, reproduce the order for a given seed, at some cost in speed.
      seed: the seed of the shuffling; None draws one.
      start: where TRAIN begins, for a training that resumes. The place is exact only if the order is reproducible: with
        `deterministic` and a seed.
      num_workers: the number of workers that share the split in TRAIN; each reads its own part.
      worker: the index of this worker, from 0.
      augmentation: image augmentation in TRAIN.
    """

    batch_size: int = 512
    shuffle_buffer: int = 50_000
    cache_bytes: int = 128 << 20
    num_epochs: int | None = None
    cycle_length: int = 8
    drop_remainder: bool = False
    deterministic: bool = False
    seed: int | None = None
    start: Position = dataclasses.field(default_factory=Position)
    num_workers: int = 1
    worker: int = 0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)

    def for_task(self, config: Any) -> InputOptions:
        """Returns the options for one task of a cluster: a worker reads its own part of the split.

        The options of the evaluator and of parameter servers do not change.

        Args:
          config: the task's `RunConfig`.
        """
        if config.global_id_in_cluster is None or config.global_id_in_cluster >= config.num_worker_replicas:
            return self
        return dataclasses.replace(self, num_workers=config.num_worker_replicas, worker=config.global_id_in_cluster)


SHUFFLE_ROWS = 50_000
SHUFFLE_BYTES = 64 << 20  # raw images are large, and three windows of rows are in memory
IMAGE_CACHE_BYTES = 512 << 20  # decoded, at most: some 2,700 photos of 256 x 256
EVAL_BATCH = 2048  # rows; images are evaluated in batches of the training's size
memory_at_first = functools.cache(available_memory)  # cached: a training's own memory must not change its order


def image_cache_bytes() -> int:
    """Returns how many bytes of decoded images a training may cache: at most a quarter of the free memory at the start.

    While images are decoded, they take twice as much, so half of the memory remains for the training. The order of
    reading depends on this number. The number is therefore `IMAGE_CACHE_BYTES`, halved until it fits: a training that
    resumes with a little more or less memory mostly gets the same number, and all machines with 2 GB or more of free
    memory get the same.
    """
    size = IMAGE_CACHE_BYTES
    while size > max(0, memory_at_first()) // 4:  # below 0: a control group uses more than its limit
        size //= 2
    return size


def input_options(
    dataset: OpenDataset, options: TrainingPlan, *, split: str, mode: str, replicas: int = 1
) -> InputOptions:
    """Returns how a split is read in a mode.

    Args:
      dataset: the opened dataset.
      options: the options of the training.
      split: the name of the split.
      mode: a `tf_estimator.ModeKeys`.
      replicas: the number of replicas that share a batch in training. Each reads its share, so the batch size is
        divided by this number.
    """
    images = dataset.image_schema is not None
    batch_size = options.batch_size
    training = mode == tf_estimator.ModeKeys.TRAIN
    if training:
        batch_size //= replicas
    small = images or training or options.eval_steps is not None
    return InputOptions(
        cycle_length=options.cycle_length or InputOptions.cycle_length,
        cache_bytes=image_cache_bytes() if images else InputOptions.cache_bytes,
        augmentation=augmentation(options.augment),
        batch_size=batch_size if small else max(batch_size, EVAL_BATCH),
        shuffle_buffer=shuffle_rows(dataset, split, options.shuffle_buffer),
        seed=options.seed,
        deterministic=options.deterministic,
        drop_remainder=training and (options.drop_remainder or options.tpu is not None),
    )


def shuffle_rows(dataset: OpenDataset, split: str, shuffle_buffer: int | None) -> int:
    """Returns the size of the shuffle buffer: the requested size, or by default 50,000 records.

    The default is smaller for a small split, and for large records, which together may take `SHUFFLE_BYTES`.
    """
    if shuffle_buffer is not None:
        return shuffle_buffer
    rows = max(1, dataset.rows(split))
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return max(1, min(SHUFFLE_ROWS, rows, SHUFFLE_BYTES * rows // max(1, size)))
