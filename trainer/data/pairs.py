"""Draws pairs of images for a model that compares two images.

Training draws new pairs in each epoch; an evaluation always draws the same pairs. Pairs are drawn among images that are
in memory together: a whole split, or a window of it. There are as many pairs as images.

The class of an image is its identity, such as a person. Half of the pairs show one identity twice, and half show two
identities. A person with very many images is drawn no more often than other people. A person with very few images is
drawn less often, because the model would soon learn these few images by heart.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.data.epochs import WINDOWS, stream

ENOUGH = 7  # an identity with this many images or more is drawn as often as any other
WINDOW_BYTES = 128 << 20  # of decoded images in a window of an evaluation; fixed, since it decides on the pairs
_EVALUATION_SEED = (0, 0)

Order = tuple[tf.Tensor, tf.Tensor]


def draw_pairs(labels: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws as many pairs as there are images: alternately of two identities and of a single identity.

    Args:
      labels: the identity of each image, int64 `[n]`.
      seed: the seed of the choice, int64 `[2]`; the same seed gives the same pairs.

    Returns:
      The indices of the two images of each pair, int64 `[n, 2]`, and 1 where both are of one identity, else 0, int64
      `[n]`.

    Raises:
      tf.errors.InvalidArgumentError: all images are of one identity, or no identity has two images.
    """
    order = tf.argsort(labels, stable=True)  # the images of each identity side by side
    sizes = tf.unique_with_counts(tf.gather(labels, order)).count
    starts = tf.cumsum(sizes, exclusive=True)
    several = tf.reduce_sum(tf.cast(sizes > 1, tf.int32))
    fits = (several > 0) & (tf.size(sizes) > 1)
    message_parts = [tf.size(sizes), "classes in a window of images, of which", several, "have several images; pairs"]
    check = tf.raw_ops.Assert(condition=fits, data=[*message_parts, "need two classes, one of several images"])
    # `count` depends on the check, so that nothing is drawn from images that form no pairs.
    with tf.control_dependencies([check]):
        count = tf.size(labels)
    same = tf.equal(tf.range(count) % 2, 1)
    first, other, left, right = tf.unstack(tf.random.stateless_uniform([4, count], seed))

    # Turns a random fraction in [0, 1) into an integer from 0 to below - 1. tf.minimum guards against rounding up.
    def drawn(fraction: tf.Tensor, below: tf.Tensor) -> tf.Tensor:
        return tf.minimum(tf.cast(fraction * tf.cast(below, tf.float32), tf.int32), below - 1)

    # Draws an index with probabilities proportional to integer weights: the place of a random integer among their sums.
    def weighted(fraction: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        ends = tf.cumsum(weights)
        return tf.searchsorted(ends, drawn(fraction, ends[-1]), side="right")

    # The first identity is drawn by weight. k images of an identity form k * (k - 1) ordered pairs, the weight for
    # pairs of a single identity; the weight for pairs of two identities is k. k counts at most ENOUGH images.
    few = tf.minimum(sizes, ENOUGH)
    identity = tf.where(same, weighted(first, few * (few - 1)), weighted(first, few))
    # Adds a number from 1 to count - 1, modulo the count of identities: any other identity, all equally likely.
    another = (identity + 1 + drawn(other, tf.size(sizes) - 1)) % tf.size(sizes)
    partner = tf.where(same, identity, another)
    size, partner_size = tf.gather(sizes, identity), tf.gather(sizes, partner)
    # `left` is an index among the images of the first identity. The second image of the same identity is another of
    # them; the second image of another identity is any image of that identity.
    left = drawn(left, size)
    second = (left + 1 + drawn(right, tf.maximum(size - 1, 1))) % size
    right = tf.where(same, second, drawn(right, partner_size))
    places = tf.stack([tf.gather(starts, identity) + left, tf.gather(starts, partner) + right], axis=1)
    return tf.cast(tf.gather(order, places), tf.int64), tf.cast(same, tf.int64)


def pairs_of(windows: tf.data.Dataset) -> tf.data.Dataset:
    """Draws the pairs of each window and returns them one by one.

    Args:
      windows: a Dataset of (window, order), as `trainer.data.epochs` describes; the last tensor of a window holds its
        labels, int64 `[n]`.

    Returns:
      A Dataset of (window, (indices of the pair's images in the window, int64 `[2]`, 1 if they are of one identity else
      0)).
    """

    def pairs(window: Any, order: Order) -> tf.data.Dataset:
        seed, left_out = order
        places, same = draw_pairs(tf.nest.flatten(window)[-1], seed)
        drawn = tf.data.Dataset.from_tensor_slices((places[left_out:], same[left_out:]))
        return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(window).repeat(), drawn))

    return windows.flat_map(pairs)


def orders(seed: tf.Tensor, rows: int, before: tf.Tensor) -> tf.data.Dataset:
    """Returns the orders of an epoch's windows of `rows` images each, without end.

    Args:
      seed: the epoch's seed, int64 `[2]`.
      rows: the number of images, and pairs, in a window.
      before: how many pairs at the beginning of the epoch are skipped, int64 `[]`.
    """

    def order(window: tf.Tensor) -> Order:
        return stream(seed, WINDOWS, window), tf.clip_by_value(before - window * rows, 0, rows)

    return tf.data.Dataset.range(tf.int64.max).map(order)


def evaluation_orders(rows: int) -> tf.data.Dataset:
    """Returns the orders of an evaluation's windows, which are the same in every evaluation."""
    return orders(tf.constant(_EVALUATION_SEED, tf.int64), rows, tf.zeros([], tf.int64))
