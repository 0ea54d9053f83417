"""The epochs of a training, each in an order that follows from the seed and from its number alone.

So reading can begin at any place as if it had read everything before, without doing so: see `Position`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import tensorflow as tf

from schemas import storage
from schemas.dataset import Dataset
from trainer.data.input_options import InputOptions, Position

# What is drawn from an epoch's seed; each has numbers of its own.
SHARDS, RECORDS, BORDERS, WINDOWS = range(4)


def epochs(
    read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    *,
    seed: int | None,
    num_epochs: int | None,
    start: Position,
) -> tf.data.Dataset:
    """One epoch after the other.

    Args:
      read: an epoch, of its seed, int64 `[2]`, without as many of its first records as it is told, int64 `[]`.
      seed: the seed of all; None draws one.
      num_epochs: how many; None for no end.
      start: where the first one begins.
    """
    drawn = random.SystemRandom().getrandbits(32) if seed is None else seed
    end = tf.int64.max if num_epochs is None else start.epoch + num_epochs

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        before = tf.where(tf.equal(number, start.epoch), tf.constant(start.record, tf.int64), 0)
        return read(tf.stack([tf.constant(drawn, tf.int64), number]), before)

    return tf.data.Dataset.range(start.epoch, end).flat_map(epoch)


def stream(seed: tf.Tensor, drawn: int, index: tf.Tensor | int = 0) -> tf.Tensor:
    """The seed, int64 `[2]`, of one of the things that are drawn in an epoch."""
    return tf.random.fold_in(tf.random.fold_in(seed, drawn), index)


def number(seed: tf.Tensor) -> tf.Tensor:
    """A random number of all 63 bits, int64 `[]`, for ops that take no seed of two numbers."""
    return tf.random.stateless_uniform([], seed, 0, tf.int64.max, tf.int64)


READ_BUFFER = 1 << 20  # bytes, each open shard


def stored(paths: Sequence[str] | tf.Tensor, compression: str) -> tf.data.Dataset:
    """The records of shards, one shard after the other: serialized, string `[]`.

    Args:
      paths: the shards, or one of them.
      compression: '' or 'GZIP'.
    """
    # TFRecordDataset wraps this op in a flat_map over the paths, which costs a row as much as its checksums do.
    reader = tf.raw_ops.TFRecordDataset(filenames=paths, compression_type=compression, buffer_size=READ_BUFFER)
    return tf.data.experimental.from_variant(reader, tf.TensorSpec([], tf.string))


def side_by_side(
    dataset: Dataset,
    split: str,
    options: InputOptions,
    read: Callable[[tf.data.Dataset, tf.Tensor, int], tf.data.Dataset],
    *,
    seed: tf.Tensor,
    block_length: int,
) -> tf.data.Dataset:
    """One worker's part of a split, once through: its shards, opened in the order of a seed, and read in turns.

    A worker takes whole shards where there are enough for all; else its share of the records of every shard. Between
    them the workers read every record once.

    Args:
      read: makes of a shard's records, its seed and the number of shards that are open at a time what is read of that
        shard.
      seed: the epoch's, int64 `[2]`.
      block_length: elements taken from one shard before the next one's turn.
    """
    shards = dataset.shards(split)
    workers, worker = options.num_workers, options.worker
    by_shard = len(shards) >= workers
    paths = tf.constant(list(shards[worker::workers] if by_shard else shards))
    if options.shuffle_buffer:
        paths = tf.random.experimental.stateless_shuffle(paths, stream(seed, SHARDS))
    open_shards = max(1, min(options.cycle_length, len(shards) // workers if by_shard else len(shards)))

    def read_one(place: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        records = stored(path, dataset.compression)
        return read(records if by_shard else records.shard(workers, worker), stream(seed, RECORDS, place), open_shards)

    return (
        tf.data.Dataset.from_tensor_slices(paths)
        .enumerate()
        .interleave(
            read_one,
            cycle_length=open_shards,
            block_length=block_length,
            num_parallel_calls=open_shards if is_remote(shards) else tf.data.AUTOTUNE,
            deterministic=options.deterministic,
        )
    )


def part_rows(dataset: Dataset, split: str, *, num_workers: int = 1, worker: int = 0) -> int:
    """How many records one worker's part of a split has; see `side_by_side`."""
    rows = [shard.rows for shard in dataset.manifest.splits[split].shards]
    if len(rows) >= num_workers:
        return sum(rows[worker::num_workers])
    return sum(len(range(worker, count, num_workers)) for count in rows)


def is_remote(shards: Sequence[str]) -> bool:
    """Whether reading waits for a server."""
    return not all(map(storage.is_local, shards))


def with_threads(batches: tf.data.Dataset, shards: Sequence[str], options: InputOptions) -> tf.data.Dataset:
    """With as many threads of its own as were asked for.

    By default there are none, or for shards on a server one for each that is open, which waits for an answer, beside
    those for the cores.
    """
    count = options.read_threads
    if count is None and not is_remote(shards):
        return batches
    own = tf.data.Options()
    own.threading.private_threadpool_size = count or min(options.cycle_length, len(shards)) + (os.cpu_count() or 1)
    return batches.with_options(own)
