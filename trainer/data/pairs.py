"""Pairs of images for a model that compares them: new ones in each step of training, the same in each evaluation.

Pairs are drawn among images that are in memory together: a whole split, or a window of it. They are drawn by identity,
which is the class of an image: half of them show one identity twice, half show two. A person of whom there are very
many images comes up no more often than any other; one of very few comes up less often, since these would soon be
learned by heart. There are as many pairs as images.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.data.epochs import WINDOWS, stream

ENOUGH = 7  # images of an identity, from which on it comes up as often as any other
WINDOW_BYTES = 128 << 20  # of decoded images that are evaluated together; fixed, as it decides which pairs are drawn
_EVALUATION_SEED = (0, 0)

Order = tuple[tf.Tensor, tf.Tensor]


def draw_pairs(labels: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws pairs of places, alternately of different identities and of the same one.

    Args:
      labels: the identity of each image, int64 `[n]`.
      seed: all that the choice depends on, int64 `[2]`.

    Returns:
      Places of images, int64 `[n, 2]`, and 1 where both are of one identity, int64 `[n]`.

    Raises:
      tf.errors.InvalidArgumentError: the images are all of one identity, or no two are.
    """
    order = tf.argsort(labels, stable=True)  # the images of each identity side by side
    sizes = tf.unique_with_counts(tf.gather(labels, order)).count
    starts = tf.cumsum(sizes, exclusive=True)
    several = tf.reduce_sum(tf.cast(sizes > 1, tf.int32))
    fits = (several > 0) & (tf.size(sizes) > 1)
    message_parts = [tf.size(sizes), "classes in a window of images, of which", several, "have several images; pairs"]
    check = tf.raw_ops.Assert(condition=fits, data=[*message_parts, "need two classes, one of several images"])
    with tf.control_dependencies([check]):
        count = tf.size(labels)
    same = tf.equal(tf.range(count) % 2, 1)
    first, other, left, right = tf.unstack(tf.random.stateless_uniform([4, count], seed))

    def drawn(fraction: tf.Tensor, below: tf.Tensor) -> tf.Tensor:
        return tf.minimum(tf.cast(fraction * tf.cast(below, tf.float32), tf.int32), below - 1)

    def weighted(fraction: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        ends = tf.cumsum(weights)
        return tf.searchsorted(ends, drawn(fraction, ends[-1]), side="right")

    few = tf.minimum(sizes, ENOUGH)
    identity = tf.where(same, weighted(first, few * (few - 1)), weighted(first, few))
    another = (identity + 1 + drawn(other, tf.size(sizes) - 1)) % tf.size(sizes)
    partner = tf.where(same, identity, another)
    size, partner_size = tf.gather(sizes, identity), tf.gather(sizes, partner)
    left = drawn(left, size)
    second = (left + 1 + drawn(right, tf.maximum(size - 1, 1))) % size
    right = tf.where(same, second, drawn(right, partner_size))
    places = tf.stack([tf.gather(starts, identity) + left, tf.gather(starts, partner) + right], axis=1)
    return tf.cast(tf.gather(order, places), tf.int64), tf.cast(same, tf.int64)


def pairs_of(windows: tf.data.Dataset) -> tf.data.Dataset:
    """Returns (a window, the two places of a pair in it, whether they are of one identity), one pair after the other.

    Args:
      windows: (a window, an order), see `trainer.data.epochs`; the last tensor of a window has its labels.
    """

    def pairs(window: Any, order: Order) -> tf.data.Dataset:
        seed, left_out = order
        places, same = draw_pairs(tf.nest.flatten(window)[-1], seed)
        drawn = tf.data.Dataset.from_tensor_slices((places[left_out:], same[left_out:]))
        return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(window).repeat(), drawn))

    return windows.flat_map(pairs)


def orders(seed: tf.Tensor, rows: int, before: tf.Tensor) -> tf.data.Dataset:
    """Returns the orders of windows of `rows` images, of which the first `before` pairs are left out."""

    def order(window: tf.Tensor) -> Order:
        return stream(seed, WINDOWS, window), tf.clip_by_value(before - window * rows, 0, rows)

    return tf.data.Dataset.range(tf.int64.max).map(order)


def evaluation_orders(rows: int) -> tf.data.Dataset:
    """Returns the orders of an evaluation's windows, which are the same in each."""
    return orders(tf.constant(_EVALUATION_SEED, tf.int64), rows, tf.zeros([], tf.int64))
