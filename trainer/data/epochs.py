"""The epochs of a training, each in an order that follows from the seed and from its number alone.

So reading can begin at any place as if it had read everything before, without doing so: see `Position`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import tensorflow as tf

from trainer.data.position import Position

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
