"""Columns of ids for a compiled step; that models compute the same with them is tested with `--tpu`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.models.canned import mean_of_rows, multi_hot

BAGS = tf.constant([[0, 2, -1], [2, 2, -1], [-1, -1, -1]], tf.int64)


def test_occurrences_are_counted():
    np.testing.assert_array_equal(multi_hot(BAGS, 4), [[1, 0, 1, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(multi_hot(BAGS[:, 1:2], 4), [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def test_embeddings_are_averaged_and_their_gradient_is_dense():
    weights = tf.constant([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        means = mean_of_rows(weights, BAGS)
        total = tf.reduce_sum(means * [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(means, [[2.5, 25.0], [4.0, 40.0], [0.0, 0.0]])
    gradient = tape.gradient(total, weights)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_allclose(gradient, [[0.5, 0.0], [0.0, 0.0], [0.5, 1.0]])
