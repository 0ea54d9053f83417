"""Several shards of a split read at a time, in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from schemas import storage
from schemas.dataset import Dataset
from trainer.data.epochs import RECORDS, SHARDS, stream
from trainer.data.input_options import InputOptions

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
