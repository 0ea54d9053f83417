"""Parameters and multiply-adds, counted from a graph."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.models.model_stats import LayerStats, ModelStats, ModelStatsHook, count


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


def test_counts_each_kind_of_layer():
    with tf.Graph().as_default() as graph:
        small_network(tf.compat.v1.placeholder(tf.float32, [None, 9, 7, 3]))
        stats = count(graph)
    assert stats.layers == LAYERS
    assert stats.parameters == 112 + 8 + 72 + 40
    assert stats.multiply_adds == 2160 + 432 + 40


def test_leaves_out_the_gradients_and_the_optimizer():
    with tf.Graph().as_default() as graph:
        loss = tf.reduce_sum(small_network(tf.compat.v1.placeholder(tf.float32, [None, 9, 7, 3])))
        tf.compat.v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        assert count(graph).layers == LAYERS


def test_counts_weights_once_and_every_use_of_them():
    with tf.Graph().as_default() as graph:
        for reuse in (False, True):
            with tf.compat.v1.variable_scope("tower", reuse=reuse):
                small_network(tf.compat.v1.placeholder(tf.float32, [None, 9, 7, 3]))
        stats = count(graph)
    assert [layer.name for layer in stats.layers] == ["tower/first", "tower/norm", "tower/depth", "tower/last"]
    assert stats.parameters == 232
    assert stats.multiply_adds == 2 * 2632


def test_counts_variables_that_multiply_nothing():
    with tf.Graph().as_default() as graph:
        with tf.compat.v1.variable_scope("words"):
            tf.nn.embedding_lookup(variable("embedding", 10, 4), [1, 2])
        assert count(graph).layers == (LayerStats("words", "other", (), 40, 0),)


def test_counts_keras_layers():
    with tf.Graph().as_default() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3])
        tf.keras.layers.Dense(10)(tf.keras.layers.Flatten()(tf.keras.layers.Conv2D(4, 3)(images)))
        stats = count(graph)
    assert [(layer.kind, layer.output_shape, layer.parameters, layer.multiply_adds) for layer in stats.layers] == [
        ("conv", (6, 6, 4), 112, 6 * 6 * 108),
        ("dense", (10,), 1450, 1440),
    ]


def test_an_unknown_side_leaves_shapes_and_costs_unknown():
    with tf.Graph().as_default() as graph:
        small_network(tf.compat.v1.placeholder(tf.float32, [None, None, 7, 3]))
        stats = count(graph)
    assert stats.layers[0] == LayerStats("first", "conv", (None, 4, 4), 112, None)
    assert stats.multiply_adds is None
    assert stats.to_csv().splitlines()[1] == "first,conv,?x4x4,112,"


def test_writes_a_line_a_layer_and_the_total():
    text = ModelStats(LAYERS[:2]).to_csv()
    assert text.splitlines() == [
        "name,type,output_shape,parameters,multiply_adds",
        "first,conv,5x4x4,112,2160",
        "norm,batch_norm,5x4x4,8,0",
        "total,,,120,2160",
    ]


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
    assert [row["name"] for row in rows] == ["first", "norm", "depth", "last", "total"]
    assert rows[-1]["parameters"] == "232"
    assert rows[-1]["multiply_adds"] == "2632"

    file.unlink()
    estimator.evaluate(input_fn)
    assert not list(folder.iterdir())
