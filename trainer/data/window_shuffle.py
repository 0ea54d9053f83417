"""Shuffled batches of examples, of which a window at a time is in memory: what shuffling costs least.

A record that waits in a shuffle buffer is an element of its own, and is handed on by itself. Here whole blocks of
records, parsed before, are joined to a window, one tensor for each feature; a random permutation of the window says
whose turn it is, and batches gather their examples by it. A split of moderate size is one window, which is kept.

Two records that lie side by side in a shard come into one batch as seldom as through a shuffle buffer of half the
window's size. No record is given in another window than the one it was read in; the borders of windows move from epoch
to epoch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

GATHERED = 4096  # examples at once; smaller batches are cut from them


def kept(blocks: tf.data.Dataset, *, rows: int, num_epochs: int | None) -> tf.data.Dataset:
    """All examples as one window, again and again.

    Args:
      blocks: the examples, of any structure of dense tensors, `[n, ...]` each; finite.
      rows: how many there are, at most.
      num_epochs: None for ever.
    """
    return blocks.rebatch(rows).cache().repeat(num_epochs)


def windows(
    blocks: tf.data.Dataset, *, rows: int, window: int, num_epochs: int | None, seed: int | None
) -> tf.data.Dataset:
    """The examples of each epoch in windows.

    Args:
      blocks: as above; it is read anew in each epoch.
      rows: how many there are, about.
      window: examples a window. An epoch of more begins with a smaller one, of random size, and ends with what is left.
      num_epochs: None for ever.
      seed: None draws one.
    """
    if rows <= window:
        return blocks.rebatch(window).repeat(num_epochs)

    whole = tf.fill([rows // window + 1], tf.constant(window, tf.int64))

    def epoch(drawn: tf.Tensor) -> tf.data.Dataset:
        return blocks.rebatch(tf.concat([[1 + drawn % window], whole], axis=0))

    draws = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    return draws.take(-1 if num_epochs is None else num_epochs).flat_map(epoch)


def shuffled_batches(
    windows: tf.data.Dataset, *, batch_size: int, drop_remainder: bool, seed: int | None, deterministic: bool
) -> tf.data.Dataset:
    """Each window's examples in an order of their own, in batches.

    Args:
      windows: of any structure of dense tensors, `[n, ...]` each.
      batch_size: examples a batch. A batch may hold the end of a window and the beginning of the next one.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      seed: None draws one.
      deterministic: the batches in the order of the permutation.

    Returns:
      A Dataset of the same structure, `[batch_size, ...]` each; fewer in the last batch, unless it is dropped.
    """
    together = max(1, GATHERED // batch_size) * batch_size
    seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).batch(2, drop_remainder=True)

    def gathers(examples: Any, seed: tf.Tensor) -> tf.data.Dataset:
        count = tf.shape(tf.nest.flatten(examples)[0], tf.int64)[0]
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed)

        def gathered(begin: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda values: tf.gather(values, order[begin : begin + together]), examples)

        begins = tf.data.Dataset.range(0, count, together)
        return begins.map(gathered, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)

    # The next window is read while batches are made of this one.
    batches = tf.data.Dataset.zip((windows.prefetch(1), seeds)).flat_map(gathers)
    return batches.rebatch(batch_size, drop_remainder)
