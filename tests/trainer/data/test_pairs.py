"""Pairs of images: how they are drawn, in training and in evaluation."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset.records import read_records
from trainer.data.input_fn import evaluation_pairs, input_fn
from trainer.data.input_options import InputOptions
from trainer.data.pairs import draw_pairs
from trainer.evaluation.scoring import eval_images
from trainer.spec.hparams import Augmentation

OPTIONS = InputOptions(batch_size=16, num_epochs=1, seed=3, augmentation=Augmentation(flip=False))
IMAGE_BYTES = 36 * 36 * 3
AS_READ = {
    "held": OPTIONS,
    "in windows": dataclasses.replace(OPTIONS, cache_bytes=30 * IMAGE_BYTES),
    "in windows where nothing is held": dataclasses.replace(OPTIONS, cache_bytes=0),
}


def drawn(labels: list[int], seed: int = 1) -> list[tuple[int, int, int]]:
    """(one place, another, whether both are of one identity) of each pair."""
    places, same = draw_pairs(tf.constant(labels, tf.int64), tf.constant([seed, 0], tf.int64))
    return [(*pair, alike) for pair, alike in zip(places.numpy().tolist(), same.numpy().tolist(), strict=True)]


LABELS = [7, 3, 3, 7, 3, 5, 5, 9, *[1] * 400]  # 9 has one image, 1 is famous


class TestDrawing:
    def test_half_are_of_one_identity_and_none_of_one_image(self):
        pairs = drawn(LABELS)
        assert len(pairs) == len(LABELS)
        assert [same for *_, same in pairs] == [0, 1] * (len(pairs) // 2)
        for left, right, same in pairs:
            assert left != right
            assert (LABELS[left] == LABELS[right]) == same

    def test_identities_come_up_alike_but_for_those_of_few_images(self):
        labels = [0] * 2 + [1] * 8 + [2] * 20 + [3] * 400
        pairs = [pair for seed in range(40) for pair in drawn(labels, seed)]
        same = collections.Counter(labels[left] for left, _, alike in pairs if alike)
        assert 0.9 < same[1] / same[3] < 1.1
        assert 0.9 < same[2] / same[3] < 1.1
        assert same[0] < 0.1 * same[3]
        different = collections.Counter(labels[i] for *both, alike in pairs if not alike for i in both)
        assert max(different.values()) < 2 * min(different.values())

    @pytest.mark.parametrize(("labels", "counts"), [([1, 1, 1], r"\[1\].*\[1\]"), ([1, 2, 3], r"\[3\].*\[0\]")])
    def test_what_has_no_pairs_is_refused(self, labels, counts):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{counts}.*need two classes, one of several images"):
            drawn(labels)


def crops_by_class(dataset, split):
    """The class of every crop that the images of a split may give."""
    classes = {}
    for record in read_records(dataset, split, dataset.rows(split)):
        image = record["image"]
        pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width, 3)
        for top, left in np.ndindex(5, 5):
            classes[pixels[top : top + 32, left : left + 32].tobytes()] = (record["image/class/text"], (top, left))
    return classes


def read(dataset, split, mode, options=OPTIONS):
    batches = [
        (f["left"].numpy(), f["right"].numpy(), y.numpy())
        for f, y in input_fn(dataset, split, mode=mode, options=options)
    ]
    return [np.concatenate(part) for part in zip(*batches, strict=True)]


@pytest.mark.parametrize("how", AS_READ)
def test_training_compares_random_crops_of_the_images_of_the_split(patterns, how):
    classes = crops_by_class(patterns, "train")
    left, right, same = read(patterns, "train", "train", AS_READ[how])
    assert len(same) == patterns.rows("train")
    assert abs(2 * np.sum(same) - len(same)) <= 5  # a window may have one pair more of one kind; there are up to five
    apart = []
    for left_image, right_image, alike in zip(left, right, same, strict=True):
        (first, corner), (second, other_corner) = classes[left_image.tobytes()], classes[right_image.tobytes()]
        assert (first == second) == alike
        apart.append(corner != other_corner)
    assert np.mean(apart) > 0.8


@pytest.mark.parametrize("how", ["held", "in windows"])
def test_each_epoch_has_new_pairs(patterns, how):
    options = dataclasses.replace(AS_READ[how], num_epochs=2)
    left, right, _ = read(patterns, "train", "train", options)
    pairs = [a.tobytes() + b.tobytes() for a, b in zip(left, right, strict=True)]
    assert len(set(pairs)) > 0.95 * len(pairs)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_every_evaluation_has_the_same_pairs_whatever_the_options(patterns, mode):
    """So models and exports are compared on the same ones, as `promote` scores them."""
    first = read(patterns, "eval", mode)
    again = read(patterns, "eval", mode, dataclasses.replace(OPTIONS, batch_size=7, seed=9, cache_bytes=0))
    for first_array, later_array in zip(first, again, strict=True):
        np.testing.assert_array_equal(first_array, later_array)
    places, same = evaluation_pairs(patterns, "eval")
    np.testing.assert_array_equal(first[2], same)
    texts = [record["image/class/text"] for record in read_records(patterns, "eval", patterns.rows("eval"))]
    assert [texts[left] == texts[right] for left, right in places.tolist()] == (same == 1).tolist()
    rows = eval_images(patterns, patterns.image_schema, "eval", ())
    labels = np.concatenate([batch.labels for batch in rows.batches])
    assert labels.tolist() == [(b"different", b"same")[alike] for alike in same.tolist()]
