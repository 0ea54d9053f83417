"""SqueezeNext: its shape against the paper's figures, as counted from its graph, and its layers inside an Estimator."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.training import brief_config
from trainer.estimator import tf_estimator
from trainer.models.hyperparameters import VARIANTS, Variant
from trainer.models.squeezenext import (
    CLASSIFIER,
    LayerOptions,
    embed,
    squeezenext,
)

TINY = Variant(width=0.5, units=(1, 1, 1, 1))
PREDICT = LayerOptions(training=False)
TRAIN = LayerOptions(training=True)


def network(variant, *, side=227, stem_stride=None):
    """The graph of a network for 1000 classes, and its trainable variables by name."""
    with tf.Graph().as_default() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, side, side, 3])
        squeezenext(images, variant=variant, classes=1000, options=PREDICT, stem_stride=stem_stride)
        return graph, tf.compat.v1.trainable_variables()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("1.0-SqNxt-23", 0.72e6),  # the paper's figure
        # counted by hand from the authors' network definitions
        ("1.0-SqNxt-23v5", 930_016),
        ("2.0-SqNxt-23", 2_357_504),
        ("2.0-SqNxt-23v5", 3_218_688),
    ],
)
def test_has_the_published_size_at_227_pixels_and_1000_classes(name, parameters):
    _, variables = network(VARIANTS[name])
    counted = sum(variable.shape.num_elements() for variable in variables)
    assert counted == pytest.approx(parameters, rel=0.03 if name == "1.0-SqNxt-23" else 1e-9)


@pytest.mark.parametrize(
    ("side", "stem_stride", "sides"),
    [
        (227, None, [55, 28, 14, 7]),
        (64, None, [14, 7, 4, 2]),
        (64, 1, [29, 15, 8, 4]),
        (28, None, [11, 6, 3, 2]),
    ],
)
def test_halves_the_image_stage_by_stage(side, stem_stride, sides):
    graph, _ = network(TINY, side=side, stem_stride=stem_stride)
    outputs = [
        next(op for op in graph.get_operations() if op.type == "Conv2D" and f"/stage_{stage}/unit_1/expand/" in op.name)
        for stage in (1, 2, 3, 4)
    ]
    assert [op.outputs[0].shape[1] for op in outputs] == sides


@pytest.mark.parametrize("shape", [(None, 15, 64, 3), (None, None, 64, 3)])
def test_refuses_images_too_small_or_of_unknown_size(shape):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="known sides of 16 or more"):
        embed(tf.compat.v1.placeholder(tf.float32, shape), variant=TINY, options=PREDICT)


def test_only_kernels_are_regularised():
    with tf.Graph().as_default() as graph:
        squeezenext(tf.zeros([1, 32, 32, 3]), variant=TINY, classes=2, options=dataclasses.replace(TRAIN, l2=0.0))
        assert graph.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES) == []
    with tf.Graph().as_default() as graph:
        squeezenext(tf.zeros([1, 32, 32, 3]), variant=TINY, classes=2, options=TRAIN)
        losses = graph.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
        kernels = [v for v in tf.compat.v1.trainable_variables() if v.op.name.endswith("/kernel")]
        assert len(losses) == len(kernels)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            total, weights = session.run((tf.add_n(losses), kernels))
    assert total == pytest.approx(1e-4 * sum((w**2).sum() for w in weights) / 2, rel=1e-4)


@pytest.mark.slow
def test_a_step_moves_every_variable_with_the_fifth_versions_blocks(tmp_path: Path):
    """Weights by gradients, batch norm's averages by updates. The plain blocks train in `test_squeezenext_model`."""
    variant = dataclasses.replace(TINY, stem_kernel=5, project_first=True)
    rng = np.random.default_rng(1)
    images = rng.normal(size=(32, 32, 32, 3)).astype(np.float32)

    def model_fn(features, labels, mode):
        logits = squeezenext(features["image"], variant=variant, classes=2, options=TRAIN)
        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
        with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"image": images}, np.arange(32) % 2)).repeat()

    config = brief_config(tmp_path, save_checkpoints_steps=1)
    estimator = tf_estimator.Estimator(model_fn, config=config).train(input_fn, steps=1)
    start, end = (tf.train.load_checkpoint(f"{tmp_path}/model.ckpt-{step}") for step in (0, 1))
    names = estimator.get_variable_names()
    assert any(name.startswith(f"{CLASSIFIER}/") for name in names)
    assert [n for n in names if np.array_equal(start.get_tensor(n), end.get_tensor(n))] == []
