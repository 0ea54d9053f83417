"""Derives the options of `input_fn` from a dataset and the options of a training, and where reading begins."""

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
    """The place where reading begins.

    Attributes:
      epoch: the number of the epoch, from 0; its order follows from the seed and this number alone.
      record: how many records of that epoch are left out, since they were read before.
    """

    epoch: int = 0
    record: int = 0

    def records(self, rows: int) -> int:
        """Returns how many records were read before, in epochs of `rows`."""
        return self.epoch * rows + self.record

    def after(self, records: int, *, rows: int) -> Position:
        """Returns the place that many records further on, in epochs of `rows`."""
        epochs, record = divmod(self.record + records, rows)
        return Position(self.epoch + epochs, record)

    def next_epoch(self) -> Position:
        """Returns the beginning of the next epoch; the place itself if an epoch begins there."""
        return Position(self.epoch + 1) if self.record else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How `input_fn` reads a split.

    Attributes:
      batch_size: examples in a batch.
      shuffle_buffer: how well records are shuffled in TRAIN, as the size of the equivalent shuffle buffer. Images that
        are not cached pass such a buffer, shared by all open shards; rows are shuffled in windows of twice as many. 0
        leaves them in the order in which they are read.
      cache_bytes: a CSV split is cached in memory in TRAIN, and shuffled completely, if its parsed values take at most
        this many bytes; never with a `shuffle_buffer` of 0. If features are sparse, unparsed records are cached and the
        shards' bytes count, `UNPACKED` times if they are compressed. Images are cached decoded; the first `MEASURED`
        records say about what all take. `millrace train` gives images `image_cache_bytes`.
      num_epochs: passes over the split; None repeats forever in TRAIN, and is one pass otherwise.
      cycle_length: the number of shards read in parallel in TRAIN.
      drop_remainder: drop a last batch that is not full, so that shapes are static.
      deterministic: in TRAIN, reproduce the order for a given seed, at some cost in speed.
      seed: of the shuffling; None draws one.
      start: where TRAIN begins, for a training that resumes. Exact where the order is: with `deterministic` and a seed.
      num_workers: the number of workers that share the split in TRAIN, each reading its own part of it.
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
        """Returns the options for one task of a cluster, given its `RunConfig`: a worker reads its part of the split.

        The options of the evaluator and of parameter servers do not change.
        """
        if config.global_id_in_cluster is None or config.global_id_in_cluster >= config.num_worker_replicas:
            return self
        return dataclasses.replace(self, num_workers=config.num_worker_replicas, worker=config.global_id_in_cluster)


SHUFFLE_ROWS = 50_000
SHUFFLE_BYTES = 64 << 20  # the job has shuffled the shards; raw images are large, and three windows of rows are held
IMAGE_CACHE_BYTES = 512 << 20  # decoded, at most: some 2,700 photos of 256 x 256
EVAL_BATCH = 2048  # rows; images are evaluated in batches of what training can hold
memory_at_first = functools.cache(available_memory)  # what a training takes must not change the order in which it reads


def image_cache_bytes() -> int:
    """Returns how many bytes of decoded images a training holds: a quarter of the memory available at first.

    They take twice as much while they are decoded, which leaves half to the training. The order of reading follows from
    this number, so it is halved until it fits: a training that resumes with a little more or less memory mostly finds
    the same. It is never raised: all machines with 2 GB have the same.
    """
    size = IMAGE_CACHE_BYTES
    while size > max(0, memory_at_first()) // 4:  # below 0: more is used than the limit of a group
        size //= 2
    return size


def input_options(
    dataset: OpenDataset, options: TrainingPlan, *, split: str, mode: str, replicas: int = 1
) -> InputOptions:
    """Returns how a split is read in a mode. In training, each replica's share of a batch is read as a batch."""
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
    """Returns the shuffle buffer: as asked, or 50,000 records, fewer where they are large or the split is small."""
    if shuffle_buffer is not None:
        return shuffle_buffer
    rows = max(1, dataset.rows(split))
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return max(1, min(SHUFFLE_ROWS, rows, SHUFFLE_BYTES * rows // max(1, size)))
