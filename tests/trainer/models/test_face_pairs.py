"""The model `face_pairs`: what it computes of two images, and its three paths."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.training import Trained, brief_config, measured
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.models import BUILT_IN
from trainer.models.face_pairs import contrast_loss, embed
from trainer.models.hyperparameters import FacePairsHparams
from trainer.models.layers import LayerOptions
from trainer.spec.task_spec import read_task_spec

TOWER = {"width": 4, "embedding_size": 8, "dropout": 0.5, "grayscale": True}


def run(make):
    """The value of the tensor that `make()` builds, in a new graph."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = make()
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run(tensors)


def tower(images, *, training=False, **changes):
    return embed(tf.constant(images), options=LayerOptions(training=training), **{**TOWER, **changes})


def noise(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


class TestTower:
    @pytest.mark.parametrize(("side", "last"), [(16, 4), (72, 3), (250, 4)])
    def test_halves_the_image_to_about_4x4(self, side, last):
        with tf.Graph().as_default():
            tower(np.zeros((1, side, side, 3), np.float32))
            (weights,) = (v for v in tf.compat.v1.trainable_variables() if v.op.name == "embedding/kernel")
            convolutions = [v.shape[-1] for v in tf.compat.v1.trainable_variables() if v.shape.rank == 4]
        assert weights.shape[0] == last * last * convolutions[-1]
        assert convolutions == [4 * min(8, 2**i) for i in range(len(convolutions))]

    def test_does_not_see_the_light(self):
        """Brightness and contrast of an image are taken out."""
        images = noise(1, 32, 32, 3)
        dark = np.concatenate([images, images * 0.5 - 1.0])
        vector, dark_vector = run(lambda: tower(dark))
        np.testing.assert_allclose(vector, dark_vector, rtol=0.05, atol=0.01)

    @pytest.mark.parametrize(("grayscale", "alike"), [(True, True), (False, False)])
    def test_sees_colors_unless_grayscale(self, grayscale, alike):
        images = noise(1, 32, 32, 3)
        both = np.concatenate([images, images[..., ::-1]])
        vector, swapped_vector = run(lambda: tower(both, grayscale=grayscale))
        assert np.allclose(vector, swapped_vector, atol=1e-5) == alike


class TestContrastLoss:
    def test_of_a_batch_without_the_same_has_gradients(self):
        def make():
            left = tf.zeros([2, 3])
            loss = contrast_loss(left, tf.ones([2, 3]), tf.zeros([2], tf.int64))
            return tf.convert_to_tensor(tf.gradients(loss, left)[0])

        np.testing.assert_array_equal(run(make), np.zeros((2, 3)))

    @pytest.mark.parametrize(
        ("left", "right", "labels", "loss"),
        [
            ([[0.0], [0.0]], [[0.0], [0.0]], [1, 1], np.log(2)),  # either partner is as near
            ([[0.0], [500.0]], [[0.0], [500.0]], [1, 1], 0.0),
            ([[0.0], [500.0]], [[500.0], [0.0]], [1, 1], 50.0),  # the wrong one is nearer, by 500 x 0.1
            ([[0.0], [0.0], [7.0]], [[0.0], [0.0], [7.0]], [1, 1, 0], np.log(2)),  # different pairs stay out
            ([[0.0], [1.0]], [[0.0], [9.0]], [1, 0], 0.0),
            ([[0.0], [1.0]], [[0.0], [9.0]], [0, 0], 0.0),
        ],
    )
    def test_is_of_picking_the_partner(self, left, right, labels, loss):
        contrast = run(lambda: contrast_loss(tf.constant(left), tf.constant(right), tf.constant(labels, tf.int64)))
        assert contrast == pytest.approx(loss, abs=1e-5)


class TrainedPairs(Trained):
    def read(self, mode="eval", split="eval"):
        return input_fn(self.dataset, split, mode=mode, options=InputOptions(batch_size=32, seed=1, deterministic=True))

    def predict(self, change=lambda features: features):
        read = lambda: self.read("infer").map(lambda features, _: change(features))  # noqa: E731
        return list(self.estimator.predict(read))

    def evaluate(self):
        return measured(self.estimator, self.dataset).evaluate(self.read)

    def labels(self):
        return np.concatenate([labels.numpy() for _, labels in self.read()])


@pytest.fixture(scope="module")
def trained(tmp_path_factory, patterns) -> TrainedPairs:
    """Some steps on drawn patterns; those of the evaluation were never seen."""
    config = brief_config(tmp_path_factory.mktemp("model"))
    hparams = FacePairsHparams(width=8)
    estimator = BUILT_IN["face_pairs"].build(read_task_spec(patterns, max_steps=150), hparams, config)
    model = TrainedPairs(patterns, estimator)
    estimator.train(lambda: model.read("train", "train"), max_steps=150)
    return model


class TestPaths:
    def test_distinguishes_identities_that_it_has_never_seen(self, trained):
        metrics = trained.evaluate()
        assert metrics["auc"] >= 0.9
        assert metrics["accuracy"] >= 0.7
        assert {"average_loss", "loss"} < set(metrics)

    def test_predicts_the_probability_of_the_same(self, trained):
        for p in trained.predict():
            same = 1 / (1 + np.exp(-p["logits"]))
            np.testing.assert_allclose(p["probabilities"], [1 - same, same], rtol=1e-4, atol=1e-6)
            assert p["class_id"] == int(p["logits"] > 0)
