"""Shuffled batches of examples, one window in memory at a time: the cheapest way to shuffle.

A tf.data shuffle buffer passes on one record at a time, each an element of its own. Here blocks of parsed records are
concatenated to a window, with one tensor for each feature, and batches gather their examples by a random permutation of
the window. A split of moderate size is a single window, which is cached.

Two neighbours in a shard are in the same batch as rarely as with a shuffle buffer of half the window's size. Records do
not move between windows; the borders of the windows differ in each epoch.

An element is a window, with what is to be done with it: the seed of its order, int64 `[2]`, and how many examples of
that order are left out, int64 `[]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.data.epochs import BORDERS, WINDOWS, epochs, number, stream
from trainer.data.input_options import Position

GATHERED = 4096  # examples at once; smaller batches are cut from them


def kept(
    blocks: tf.data.Dataset, *, rows: int, num_epochs: int | None, seed: int | None, start: Position
) -> tf.data.Dataset:
    """All examples as one window, again and again.

    Args:
      blocks: the examples, of any structure of dense tensors, `[n, ...]` each; finite.
      rows: how many there are, at most.
      num_epochs: passes over the examples; None repeats forever.
      seed: the seed of the shuffle; None draws one.
      start: where the first pass begins.
    """

    def order(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((stream(seed, WINDOWS), before))

    orders = epochs(order, seed=seed, num_epochs=num_epochs, start=start)
    return tf.data.Dataset.zip((blocks.rebatch(rows).cache().repeat(), orders))


def windows(
    blocks: Callable[[tf.Tensor], tf.data.Dataset],
    *,
    rows: int,
    window: int,
    num_epochs: int | None,
    seed: int | None,
    start: Position,
) -> tf.data.Dataset:
    """The examples of each epoch in windows.

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
    """Each window's examples in an order of their own, in batches.

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


def without_first(blocks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """The same examples in blocks, without the first `count`."""
    if not count:
        return blocks
    sizes = [GATHERED] * (count // GATHERED) + [count % GATHERED] * (count % GATHERED > 0)
    return blocks.rebatch(tf.constant([*sizes, GATHERED], tf.int64)).skip(len(sizes))
