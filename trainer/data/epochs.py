"""Orders and shuffles the epochs of a training.

The order of an epoch depends only on the seed and the epoch's number. Reading can therefore start at any `Position`
and give the same examples as a run that read everything before that position.

Rows are shuffled in memory, one window of rows at a time, because this is the cheapest way. A tf.data shuffle buffer
passes on one record at a time, and every record is a separate element. Here, blocks of parsed records are concatenated
to a window with one tensor for each feature, and a random permutation of the window chooses the examples of each batch.
A split of moderate size is a single window, which is cached.

Two neighbours in a shard land in the same batch as rarely as with a shuffle buffer of half the window's size. Records
do not move between windows, but the borders of the windows differ in each epoch.

The datasets of windows in this module have elements of two parts, `(examples, order)`:

* `examples`: the window, a structure of tensors `[n, ...]`;
* `order`: the seed of the window's permutation, int64 `[2]`, and how many examples at the beginning of the permutation
  are skipped, int64 `[]`.
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

# The random choices of an epoch. `stream` gives each of them a seed of its own.
SHARDS, RECORDS, BORDERS, WINDOWS = range(4)


def epochs(
    read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    *,
    seed: int | None,
    num_epochs: int | None,
    start: Position,
) -> tf.data.Dataset:
    """Concatenates the datasets of all epochs.

    Args:
      read: reads one epoch. It takes the epoch's seed, int64 `[2]`, and the number of records to skip at the beginning,
        int64 `[]`, which is above 0 only in the epoch where reading starts.
      seed: the seed of the training; None draws one.
      num_epochs: the number of epochs; None repeats forever.
      start: where the first epoch begins.
    """
    drawn = random.SystemRandom().getrandbits(32) if seed is None else seed
    end = tf.int64.max if num_epochs is None else start.epoch + num_epochs

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        before = tf.where(tf.equal(number, start.epoch), tf.constant(start.record, tf.int64), 0)
        return read(tf.stack([tf.constant(drawn, tf.int64), number]), before)

    return tf.data.Dataset.range(start.epoch, end).flat_map(epoch)


def stream(seed: tf.Tensor, drawn: int, index: tf.Tensor | int = 0) -> tf.Tensor:
    """Derives the seed of one random choice in an epoch.

    Args:
      seed: the epoch's seed, int64 `[2]`.
      drawn: which choice: SHARDS, RECORDS, BORDERS or WINDOWS.
      index: tells choices of the same kind apart, such as the number of the window.

    Returns:
      The derived seed, int64 `[2]`.
    """
    return tf.random.fold_in(tf.random.fold_in(seed, drawn), index)


def number(seed: tf.Tensor) -> tf.Tensor:
    """Returns a random number from 0 to 2^63 - 1, int64 `[]`, for ops that take a single number as their seed."""
    return tf.random.stateless_uniform([], seed, 0, tf.int64.max, tf.int64)


READ_BUFFER = 1 << 20  # bytes, each open shard


def stored(paths: Sequence[str] | tf.Tensor, compression: str) -> tf.data.Dataset:
    """Reads the serialized records of shards, one shard after the other.

    Args:
      paths: the paths of the shards, or the path of a single shard.
      compression: '' or 'GZIP'.

    Returns:
      A Dataset of serialized records, string `[]`.
    """
    # tf.data.TFRecordDataset wraps this op in a flat_map over the paths. For each row, the flat_map would cost as much
    # time as the row's checksums.
    reader = tf.raw_ops.TFRecordDataset(filenames=paths, compression_type=compression, buffer_size=READ_BUFFER)
    return tf.data.experimental.from_variant(reader, tf.TensorSpec([], tf.string))


def shuffle(records: tf.data.Dataset, size: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Shuffles serialized records, string `[]`, through a buffer of `size` records. Only `seed` decides the order."""
    # The op is called directly for two reasons: Dataset.shuffle mixes in TensorFlow's global seed, and it fails for a
    # seed that is a tensor if the global seed is 0.
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
    """Reads one worker's part of a split once, several shards in parallel.

    If there are at least as many shards as workers, each worker reads whole shards: worker i of n reads shard i, i + n,
    and so on. Otherwise each worker reads every n-th record of every shard. Together the workers read every record
    once. The shards are opened in random order if `options.shuffle_buffer` is above 0.

    Args:
      dataset: the opened dataset.
      split: the name of the split.
      options: the number of workers, how many shards are open at a time, and how reading is shuffled.
      read: turns the records of one shard into the elements to return. It takes the Dataset of the records, a seed for
        this shard, and the number of shards that are open at a time.
      seed: the epoch's seed, int64 `[2]`.
      block_length: the number of elements that are taken from one shard before the next shard's turn.
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
    """Returns the number of records that one worker reads of a split that `side_by_side` divides."""
    rows = [shard.rows for shard in dataset.manifest.splits[split].shards]
    if len(rows) >= num_workers:
        return sum(rows[worker::num_workers])
    return sum(len(range(worker, count, num_workers)) for count in rows)


def is_remote(shards: Sequence[str]) -> bool:
    """Returns whether a shard lies on a server (in a bucket), so that reading waits for the network."""
    return not all(map(storage.is_local, shards))


def with_threads(batches: tf.data.Dataset, shards: Sequence[str], cycle_length: int) -> tf.data.Dataset:
    """Gives a dataset its own thread pool if its shards lie on a server.

    Threads that wait for the server would otherwise block TensorFlow's shared pool. The pool has one thread for each
    open shard, and one for each core.
    """
    if not is_remote(shards):
        return batches
    own = tf.data.Options()
    own.threading.private_threadpool_size = min(cycle_length, len(shards)) + (os.cpu_count() or 1)
    return batches.with_options(own)


GATHERED = 4096  # examples at once; smaller batches are cut from them


def repeated(whole: tf.data.Dataset, *, num_epochs: int | None, seed: int | None, start: Position) -> tf.data.Dataset:
    """Repeats a split that is a single window, in another random order in each epoch.

    Args:
      whole: a Dataset of one element, which holds all examples: tensors `[n, ...]`. The element is cached in memory.
      num_epochs: passes over the examples; None repeats forever.
      seed: the seed of the shuffle; None draws one.
      start: where the first pass begins.

    Returns:
      A Dataset of (examples, order), as the module describes; one element for each epoch.
    """

    # The `read` function of an epoch: a single window, so a single order.
    def order(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((stream(seed, WINDOWS), before))

    orders = epochs(order, seed=seed, num_epochs=num_epochs, start=start)
    # Each epoch is an element: the cached examples, with the order of that epoch.
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
    """Groups the examples of each epoch into windows.

    If an epoch has more rows than a window, its first window has a random size. The borders of the windows then lie at
    other rows in each epoch. The last window has the rows that are left.

    Args:
      blocks: reads the examples of one epoch in blocks, tensors `[n, ...]`. It takes the epoch's seed, int64 `[2]`.
      rows: the approximate number of examples in an epoch.
      window: the number of examples in a window.
      num_epochs: passes over the examples; None repeats forever.
      seed: the seed of the shuffle; None draws one.
      start: where the first epoch begins. Windows that lie wholly before this place are not returned.

    Returns:
      A Dataset of (examples, order), as the module describes.
    """

    def epoch(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        first = window if rows <= window else 1 + number(stream(seed, BORDERS)) % window
        # The sizes of the windows: a random first size, then whole windows, more than the epoch can fill.
        sizes = tf.concat([[first], tf.fill([rows // window + 1], tf.constant(window, tf.int64))], axis=0)
        ends = tf.cumsum(sizes)
        # When reading starts within this epoch, windows that end before the start are skipped whole, and the first
        # `left_out` examples of the next window's permutation are skipped.
        passed = tf.reduce_sum(tf.cast(ends <= before, tf.int64))  # windows that end before the start
        left_out = before - (ends - sizes)[passed]

        def order(place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return stream(seed, WINDOWS, place), tf.where(tf.equal(place, passed), left_out, 0)

        orders = tf.data.Dataset.range(passed, tf.int64.max).map(order)
        return tf.data.Dataset.zip((blocks(seed).rebatch(sizes).skip(passed), orders))

    return epochs(epoch, seed=seed, num_epochs=num_epochs, start=start)


def shuffled_batches(
    windows: tf.data.Dataset, *, batch_size: int, drop_remainder: bool, deterministic: bool
) -> tf.data.Dataset:
    """Permutes the examples of each window at random and cuts them into batches.

    Args:
      windows: a Dataset of (examples, order), as the module describes. The examples may have any structure of dense
        tensors `[n, ...]`.
      batch_size: examples in a batch. A batch may hold the end of one window and the beginning of the next window.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      deterministic: return the batches exactly in the order of the permutation, at some cost in speed.

    Returns:
      A Dataset with the structure of the examples, `[batch_size, ...]` each. The last batch has fewer examples, unless
      it is dropped.
    """
    # Several batches are gathered by one op, since small gathers cost more than they copy; rebatch cuts them apart.
    together = max(1, GATHERED // batch_size) * batch_size

    def gathers(examples: Any, order: tuple[tf.Tensor, tf.Tensor]) -> tf.data.Dataset:
        """Gathers one window's examples in random order, several batches at a time."""
        seed, left_out = order
        count = tf.shape(tf.nest.flatten(examples)[0], tf.int64)[0]
        permuted = tf.random.experimental.stateless_shuffle(tf.range(count), seed)

        def gathered(begin: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda values: tf.gather(values, permuted[begin : begin + together]), examples)

        begins = tf.data.Dataset.range(left_out, count, together)
        return begins.map(gathered, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)

    # prefetch(1): the next window is read while batches are made of the current window.
    return windows.prefetch(1).flat_map(gathers).rebatch(batch_size, drop_remainder)


def shuffled_places(windows: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the examples of windows one by one, in random order within each window.

    An example is not copied: an element of the result holds the whole window and the index of the example. All elements
    of a window share the window's memory.

    Args:
      windows: a Dataset of (examples, order), as the module describes. The last tensor of the examples has shape `[n]`,
        which gives the number of examples.

    Returns:
      A Dataset of (examples of the whole window, index of one example, int64 `[]`).
    """

    def places(window: Any, order: tuple[tf.Tensor, tf.Tensor]) -> tf.data.Dataset:
        """Returns the examples of one window in random order, each as (the window, its index)."""
        seed, left_out = order
        rows = tf.size(tf.nest.flatten(window)[-1], tf.int64)
        permuted = tf.random.experimental.stateless_shuffle(tf.range(rows), seed)[left_out:]
        same = tf.data.Dataset.from_tensors(window).repeat()
        return tf.data.Dataset.zip((same, tf.data.Dataset.from_tensor_slices(permuted)))

    return windows.flat_map(places)


def without_first(blocks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Skips the first `count` examples of a dataset of blocks.

    The blocks are cut anew, with a border after `count` examples.
    """
    if not count:
        return blocks
    # The first blocks hold exactly `count` examples and are skipped; rebatch repeats the last size after that.
    sizes = [GATHERED] * (count // GATHERED) + [count % GATHERED] * (count % GATHERED > 0)
    return blocks.rebatch(tf.constant([*sizes, GATHERED], tf.int64)).skip(len(sizes))
