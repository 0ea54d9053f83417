"""Recall among the first guesses, the ROC curve, and the pictures of them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainer.images.metrics import area_under, recall_at, roc_curve, top
from trainer.images.plots import SIDE, confusion_image, png, roc_image


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


class TestRoc:
    @pytest.mark.parametrize(
        ("labels", "scores", "false", "true", "area"),
        [
            ([0, 1], [0.1, 0.9], [0, 0, 1], [0, 1, 1], 1.0),
            ([1, 0], [0.1, 0.9], [0, 1, 1], [0, 0, 1], 0.0),
            ([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5], [0, 1], [0, 1], 0.5),  # equal scores are one point
            ([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], [0, 0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1, 1], 0.75),
            ([1, 1], [0.1, 0.2], [0, 0, 0], [0, 0.5, 1], 0.0),  # nothing to tell apart
        ],
    )
    def test_curve_and_area(self, labels, scores, false, true, area):
        curve = roc_curve(np.array(labels), np.array(scores))
        np.testing.assert_allclose(curve[0], false)
        np.testing.assert_allclose(curve[1], true)
        assert area_under(*curve) == pytest.approx(area)

    def test_area_is_the_share_of_pairs_in_order(self):
        rng = np.random.default_rng(1)
        labels = rng.integers(0, 2, 200)
        scores = rng.normal(labels, 1.0).round(1)  # rounded: some are equal
        difference = scores[labels == 1][:, None] - scores[labels == 0][None]
        expected = np.mean((difference > 0) + 0.5 * (difference == 0))
        assert area_under(*roc_curve(labels, scores)) == pytest.approx(expected)


class TestPictures:
    def test_a_png_holds_the_pixels(self):
        pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
        np.testing.assert_array_equal(tf.io.decode_png(png(pixels)), pixels)

    def test_the_confusion_matrix_is_darker_for_higher_counts(self):
        image = confusion_image(np.array([[8, 0], [3, 9]]))
        assert image.shape == (64, 64, 3)
        right, none, few, most = (int(image[row, column].sum()) for row in (16, 48) for column in (16, 48))
        assert right < most < few < none == 3 * 255

    @pytest.mark.parametrize(("classes", "side"), [(2, 64), (100, 500), (1000, 1000)])
    def test_the_confusion_matrix_of_many_classes_fits(self, classes, side):
        image = confusion_image(np.eye(classes, dtype=np.int64))
        assert image.shape == (side, side, 3)
        assert image.dtype == np.uint8

    def test_a_class_without_examples_is_white(self):
        assert confusion_image(np.array([[0, 0], [0, 1]]))[16, 16].tolist() == [255, 255, 255]

    def test_the_roc_goes_through_its_points(self):
        image = roc_image(np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0]))
        diagonal = roc_image(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        assert image.shape == diagonal.shape == (SIDE, SIDE, 3)
        blue = np.array([20, 80, 180])
        corner, middle = (8, 8), (SIDE // 2, SIDE // 2 - 1)
        assert (image[corner] == blue).all()
        assert not (image[middle] == blue).all()
        assert (diagonal[middle] == blue).all()
