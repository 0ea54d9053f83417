"""SqueezeNext: its shape against the paper's figures, as counted from its graph, and its layers inside an Estimator."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.training import brief_config
from trainer.estimator import tf_estimator
from trainer.models import VARIANTS, Variant
from trainer.models.model_stats import LayerStats, ModelStatsHook, count
from trainer.models.squeezenext import (
    CLASSIFIER,
    SCOPE,
    LayerOptions,
    embed,
    squeezenext,
)

TINY = Variant(width=0.5, units=(1, 1, 1, 1))
PREDICT = LayerOptions(training=False)
TRAIN = LayerOptions(training=True)


def stats(variant, *, side=227, stem_stride=None):
    with tf.Graph().as_default() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, side, side, 3])
        squeezenext(images, variant=variant, classes=1000, options=PREDICT, stem_stride=stem_stride)
        return count(graph)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        # the paper's figures
        ("1.0-SqNxt-23", 0.72e6, 282e6),
        # counted by hand from the authors' network definitions
        ("1.0-SqNxt-23v5", 930_016, 224_916_480),
        ("2.0-SqNxt-23", 2_357_504, 729_680_064),
        ("2.0-SqNxt-23v5", 3_218_688, 689_746_944),
    ],
)
def test_has_the_published_size_at_227_pixels_and_1000_classes(name, parameters, multiply_adds):
    counted = stats(VARIANTS[name])
    tolerance = 0.03 if name == "1.0-SqNxt-23" else 1e-9
    assert counted.parameters == pytest.approx(parameters, rel=tolerance)
    assert counted.multiply_adds == pytest.approx(multiply_adds, rel=tolerance)


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
    shapes = {s.name: s.output_shape for s in stats(TINY, side=side, stem_stride=stem_stride).layers}
    assert [shapes[f"{SCOPE}/stage_{stage}/unit_1/expand"][0] for stage in (1, 2, 3, 4)] == sides


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


def variable(name, *shape, **kwargs):
    return tf.compat.v1.get_variable(name, shape, **kwargs)


def small_network(images):
    """A convolution, a depthwise one, batch norm and a dense layer: `[batch, 9, 7, 3]` -> `[batch, 5]`."""
    with tf.compat.v1.variable_scope("first"):
        x = tf.nn.conv2d(images, variable("kernel", 3, 3, 3, 4), 2, "SAME") + variable("bias", 4)
    with tf.compat.v1.variable_scope("norm"):
        x = tf.compat.v1.nn.fused_batch_norm(x, variable("gamma", 4), variable("beta", 4))[0]
        variable("moving_mean", 4, trainable=False)
    with tf.compat.v1.variable_scope("depth"):
        x = tf.nn.depthwise_conv2d(x, variable("kernel", 3, 3, 4, 2), [1, 1, 1, 1], "VALID")
    with tf.compat.v1.variable_scope("last"):
        return tf.matmul(tf.reduce_mean(x, [1, 2]), variable("kernel", 8, 5))


LAYERS = (
    LayerStats("first", "conv", (5, 4, 4), 3 * 3 * 3 * 4 + 4, 5 * 4 * 3 * 3 * 3 * 4),
    LayerStats("norm", "batch_norm", (5, 4, 4), 8, 0),
    LayerStats("depth", "depthwise_conv", (3, 2, 8), 3 * 3 * 4 * 2, 3 * 2 * 3 * 3 * 4 * 2),
    LayerStats("last", "dense", (5,), 40, 40),
)


def test_counts_variables_that_multiply_nothing():
    with tf.Graph().as_default() as graph:
        with tf.compat.v1.variable_scope("words"):
            tf.nn.embedding_lookup(variable("embedding", 10, 4), [1, 2])
        assert count(graph).layers == (LayerStats("words", "other", (), 40, 0),)


def test_an_unknown_side_leaves_shapes_and_costs_unknown():
    with tf.Graph().as_default() as graph:
        small_network(tf.compat.v1.placeholder(tf.float32, [None, None, 7, 3]))
        stats = count(graph)
    assert stats.layers[0] == LayerStats("first", "conv", (None, 4, 4), 112, None)
    assert stats.multiply_adds is None
    assert stats.to_csv().splitlines()[1] == "first,conv,?x4x4,112,"


@pytest.mark.parametrize("slash", ["", "/"])
def test_an_estimator_writes_the_file_in_training_alone(tmp_path: Path, slash):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.square(small_network(features["image"])))
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, tf.compat.v1.train.get_global_step())
        hooks = [ModelStatsHook(params["folder"])]
        return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_chief_hooks=hooks)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"image": tf.ones([2, 9, 7, 3])}, tf.zeros([2]))).repeat(2)

    folder = tmp_path / "model"
    estimator = tf_estimator.Estimator(model_fn, str(tmp_path / "ckpt"), params={"folder": f"{folder}{slash}"})
    estimator.train(input_fn, steps=1)
    (file,) = folder.iterdir()
    assert file.name == "model_stats.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [tuple(row.values()) for row in rows[:-1]] == [
        (x.name, x.kind, "x".join(map(str, x.output_shape)), str(x.parameters), str(x.multiply_adds)) for x in LAYERS
    ]
    assert (rows[-1]["name"], rows[-1]["parameters"], rows[-1]["multiply_adds"]) == ("total", "232", "2632")

    file.unlink()
    estimator.evaluate(input_fn)
    assert not list(folder.iterdir())
