"""Several shards of a split read at a time, in turns."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_options import InputOptions

READ_BUFFER = 1 << 20  # bytes, each open shard


def side_by_side(
    dataset: Dataset,
    split: str,
    options: InputOptions,
    read: Callable[[tf.data.Dataset, tf.Tensor, int], tf.data.Dataset],
    *,
    block_length: int,
) -> tf.data.Dataset:
    """One worker's part of a split, once through: its shards, opened in random order, and read in turns.

    A worker takes whole shards where there are enough for all; else its share of the records of every shard. Between
    them the workers read every record once.

    Args:
      read: makes of a shard's records, its seed (another one in each epoch) and the number of shards that are open at
        a time what is read of that shard.
      block_length: elements taken from one shard before the next one's turn.
    """
    shards = dataset.shards(split)
    files = tf.data.Dataset.from_tensor_slices(list(shards))
    workers, worker = options.num_workers, options.worker
    by_shard = len(shards) >= workers
    if workers > 1 and by_shard:
        files = files.shard(workers, worker)
    if options.shuffle_buffer:
        files = files.shuffle(len(shards), seed=options.seed)
    open_shards = max(1, min(options.cycle_length, len(shards) // workers if by_shard else len(shards)))

    def read_one(path: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(path, dataset.compression, READ_BUFFER)
        return read(records if by_shard else records.shard(workers, worker), seed, open_shards)

    # A seed for each shard, another in each epoch: a constant one would repeat the shard's order.
    seeds = tf.data.Dataset.random(options.seed, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip((files, seeds)).interleave(
        read_one,
        cycle_length=open_shards,
        block_length=block_length,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=options.deterministic,
    )
