"""Recall among the first guesses, and pixels as a PNG."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainer.images.hooks import png, recall_at, top


def recall(k: int, batches) -> float:
    """Over all batches of (labels, logits), as an evaluation computes it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        labels = tf.compat.v1.placeholder(tf.int64, [None])
        logits = tf.compat.v1.placeholder(tf.float32, [None, len(batches[0][1][0])])
        value, update = recall_at(k, labels, logits)
        session.run(tf.compat.v1.local_variables_initializer())
        for batch in batches:
            session.run(update, dict(zip((labels, logits), batch, strict=True)))
        return float(session.run(value))


class TestRecall:
    LOGITS = ((3.0, 2.0, 1.0, 0.0), (0.0, 3.0, 2.0, 1.0))

    @pytest.mark.parametrize(
        ("k", "labels", "share"),
        [(1, [0, 1], 1.0), (1, [0, 0], 0.5), (1, [3, 0], 0.0), (2, [1, 2], 1.0), (2, [2, 2], 0.5), (5, [3, 0], 1.0)],
    )
    def test_is_the_share_among_the_k_highest(self, k, labels, share):
        assert recall(k, [(labels, self.LOGITS)]) == share

    def test_is_computed_over_the_split_and_not_averaged_over_batches(self):
        batches = [([0, 1], self.LOGITS), ([3], self.LOGITS[:1])]
        assert recall(1, batches) == pytest.approx(2 / 3)

    def test_does_not_call_equal_logits_all_right(self):
        assert recall(1, [([0, 1, 2, 3], np.ones((4, 4)))]) == 0.25

    def test_top_gives_the_highest_first(self):
        np.testing.assert_array_equal(top(5, tf.constant([[1.0, 3.0, 2.0]])), [[1, 2, 0]])
        np.testing.assert_array_equal(top(2, tf.constant([[1.0, 3.0, 2.0]])), [[1, 2]])


class TestPictures:
    def test_a_png_holds_the_pixels(self):
        pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
        np.testing.assert_array_equal(tf.io.decode_png(png(pixels)), pixels)
