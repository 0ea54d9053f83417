"""Orders and shuffles the epochs of a training, each by the seed and its number alone.

So reading can begin at any place as if it had read everything before, without doing so: see `Position`.

Rows are shuffled one window in memory at a time, which is the cheapest way.

A tf.data shuffle buffer passes on one record at a time, each an element of its own. Here blocks of parsed records are
concatenated to a window, with one tensor for each feature, and batches gather their examples by a random permutation of
the window. A split of moderate size is a single window, which is cached.

Two neighbours in a shard are in the same batch as rarely as with a shuffle buffer of half the window's size. Records do
not move between windows; the borders of the windows differ in each epoch.

An element is a window, with what is to be done with it: the seed of its order, int64 `[2]`, and how many examples of
that order are left out, int64 `[]`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from schemas import storage
from schemas.dataset import OpenDataset
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
    """Reads one epoch after the other.

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
    """Returns the seed, int64 `[2]`, of one of the things that are drawn in an epoch."""
    return tf.random.fold_in(tf.random.fold_in(seed, drawn), index)


def number(seed: tf.Tensor) -> tf.Tensor:
    """Returns a random number of all 63 bits, int64 `[]`, for ops that take no seed of two numbers."""
    return tf.random.stateless_uniform([], seed, 0, tf.int64.max, tf.int64)


READ_BUFFER = 1 << 20  # bytes, each open shard


def stored(paths: Sequence[str] | tf.Tensor, compression: str) -> tf.data.Dataset:
    """Reads the records of shards, one shard after the other: serialized, string `[]`.

    Args:
      paths: the shards, or one of them.
      compression: '' or 'GZIP'.
    """
    # TFRecordDataset wraps this op in a flat_map over the paths, which costs a row as much as its checksums do.
    reader = tf.raw_ops.TFRecordDataset(filenames=paths, compression_type=compression, buffer_size=READ_BUFFER)
    return tf.data.experimental.from_variant(reader, tf.TensorSpec([], tf.string))


def shuffle(records: tf.data.Dataset, size: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Shuffles serialized records, string `[]`, by the seed alone, through a buffer of `size` of them."""
    # Dataset.shuffle mixes in the seed of the whole program, and fails for a tensor as its own where that one is 0.
    first, second = tf.unstack(tf.random.stateless_uniform([2], seed, 1, tf.int64.max, tf.int64))
    shuffled = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=size,
        seed=first,
        seed2=second,
        output_types=[tf.string],
        output_shapes=[[]],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(shuffled, records.element_spec)


def side_by_side(
    dataset: OpenDataset,
    split: str,
    options: InputOptions,
    read: Callable[[tf.data.Dataset, tf.Tensor, int], tf.data.Dataset],
    *,
    seed: tf.Tensor,
    block_length: int,
) -> tf.data.Dataset:
    """Reads one worker's part of a split once: its shards, opened in the order of a seed, and read in turns.

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


def part_rows(dataset: OpenDataset, split: str, *, num_workers: int, worker: int) -> int:
    """Returns how many records one worker's part of a split has; see `side_by_side`."""
    rows = [shard.rows for shard in dataset.manifest.splits[split].shards]
    if len(rows) >= num_workers:
        return sum(rows[worker::num_workers])
    return sum(len(range(worker, count, num_workers)) for count in rows)


def is_remote(shards: Sequence[str]) -> bool:
    """Returns whether reading waits for a server."""
    return not all(map(storage.is_local, shards))


def with_threads(batches: tf.data.Dataset, shards: Sequence[str], cycle_length: int) -> tf.data.Dataset:
    """Gives a dataset threads of its own for shards on a server: one for each open shard, which waits, and core."""
    if not is_remote(shards):
        return batches
    own = tf.data.Options()
    own.threading.private_threadpool_size = min(cycle_length, len(shards)) + (os.cpu_count() or 1)
    return batches.with_options(own)


GATHERED = 4096  # examples at once; smaller batches are cut from them


def repeated(whole: tf.data.Dataset, *, num_epochs: int | None, seed: int | None, start: Position) -> tf.data.Dataset:
    """Repeats all examples as one window.

    Args:
      whole: one element, all examples.
      num_epochs: passes over the examples; None repeats forever.
      seed: the seed of the shuffle; None draws one.
      start: where the first pass begins.
    """

    def order(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((stream(seed, WINDOWS), before))

    orders = epochs(order, seed=seed, num_epochs=num_epochs, start=start)
    return tf.data.Dataset.zip((whole.cache().repeat(), orders))


def windows(
    blocks: Callable[[tf.Tensor], tf.data.Dataset],
    *,
    rows: int,
    window: int,
    num_epochs: int | None,
    seed: int | None,
    start: Position,
) -> tf.data.Dataset:
    """Gathers the examples of each epoch in windows.

    Args:
      blocks: the examples of an epoch, as above, in an order of its seed.
      rows: about how many there are.
      window: examples a window. An epoch of more begins with a smaller one, of random size, and ends with what is left.
      num_epochs, seed, start: as above.
    """

    def epoch(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        first = window if rows <= window else 1 + number(stream(seed, BORDERS)) % window
        sizes = tf.concat([[first], tf.fill([rows // window + 1], tf.constant(window, tf.int64))], axis=0)
        ends = tf.cumsum(sizes)
        passed = tf.reduce_sum(tf.cast(ends <= before, tf.int64))  # windows of which nothing is left
        left_out = before - (ends - sizes)[passed]

        def order(place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return stream(seed, WINDOWS, place), tf.where(tf.equal(place, passed), left_out, 0)

        orders = tf.data.Dataset.range(passed, tf.int64.max).map(order)
        return tf.data.Dataset.zip((blocks(seed).rebatch(sizes).skip(passed), orders))

    return epochs(epoch, seed=seed, num_epochs=num_epochs, start=start)


def shuffled_batches(
    windows: tf.data.Dataset, *, batch_size: int, drop_remainder: bool, deterministic: bool
) -> tf.data.Dataset:
    """Batches each window's examples in an order of their own.

    Args:
      windows: as above, of any structure of dense tensors, `[n, ...]` each.
      batch_size: examples a batch. A batch may hold the end of a window and the beginning of the next one.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      deterministic: the batches in the order of the permutation.

    Returns:
      A Dataset of the windows' structure, `[batch_size, ...]` each; fewer in the last batch, unless it is dropped.
    """
    together = max(1, GATHERED // batch_size) * batch_size

    def gathers(examples: Any, order: tuple[tf.Tensor, tf.Tensor]) -> tf.data.Dataset:
        seed, left_out = order
        count = tf.shape(tf.nest.flatten(examples)[0], tf.int64)[0]
        permuted = tf.random.experimental.stateless_shuffle(tf.range(count), seed)

        def gathered(begin: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda values: tf.gather(values, permuted[begin : begin + together]), examples)

        begins = tf.data.Dataset.range(left_out, count, together)
        return begins.map(gathered, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)

    # The next window is read while batches are made of this one.
    return windows.prefetch(1).flat_map(gathers).rebatch(batch_size, drop_remainder)


def shuffled_places(windows: tf.data.Dataset) -> tf.data.Dataset:
    """Returns (the window, the place in it) of one example after the other, each window's in a random order.

    Args:
      windows: as above, of dense tensors of any structure; the last one is `[n]`. Elements share the window's memory.
    """

    def places(window: Any, order: tuple[tf.Tensor, tf.Tensor]) -> tf.data.Dataset:
        seed, left_out = order
        rows = tf.size(tf.nest.flatten(window)[-1], tf.int64)
        permuted = tf.random.experimental.stateless_shuffle(tf.range(rows), seed)[left_out:]
        same = tf.data.Dataset.from_tensors(window).repeat()
        return tf.data.Dataset.zip((same, tf.data.Dataset.from_tensor_slices(permuted)))

    return windows.flat_map(places)


def without_first(blocks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Leaves out the first `count` of the examples in blocks."""
    if not count:
        return blocks
    sizes = [GATHERED] * (count // GATHERED) + [count % GATHERED] * (count % GATHERED > 0)
    return blocks.rebatch(tf.constant([*sizes, GATHERED], tf.int64)).skip(len(sizes))
