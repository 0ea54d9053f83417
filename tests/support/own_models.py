"""Custom models, as a user would write them, for `--model tests.support.own_models:<function>`."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized
from trainer.spec.task_spec import Dense, TaskSpec


@dataclasses.dataclass(frozen=True)
class Hparams:
    """The hyper-parameters of both functions."""

    learning_rate: float = 0.05
    units: int = 4


def model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Logistic regression on two numbers."""
    inputs = tf.stack([features["age"], features["hours"]], axis=1)
    logits = tf.squeeze(tf.keras.layers.Dense(1)(inputs), axis=1)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, logits > 0)}
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def worsening(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Regression: what it predicts for all rows is the step, below zero."""
    step = tf.compat.v1.train.get_or_create_global_step()
    value = tf.zeros_like(features["age"]) - tf.cast(step, tf.float32)
    predictions = {"value": value}
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.square(value - labels))
    metrics = {"average_loss": tf.compat.v1.metrics.mean(tf.square(value - labels))}
    train_op = step.assign_add(1)
    return tf_estimator.EstimatorSpec(mode, predictions, loss, train_op, eval_metric_ops=metrics)


def keras_model(task_spec: TaskSpec, hparams: Hparams) -> Any:
    """All numbers, through one hidden layer."""
    inputs = [tf.keras.Input((entry.width,), name=entry.name) for entry in task_spec.inputs if isinstance(entry, Dense)]
    numbers = tf.keras.layers.Concatenate()(inputs) if len(inputs) > 1 else inputs[0]
    hidden = tf.keras.layers.Dense(hparams.units, "relu")(numbers)
    optimizer = tf.keras.optimizers.legacy.Adam(hparams.learning_rate)
    if task_spec.classes is None:
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
        model.compile(optimizer, "mse")
    else:
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(task_spec.classes, "softmax")(hidden))
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def uncompiled(task_spec: TaskSpec, hparams: Hparams) -> Any:
    return tf.keras.Sequential([tf.keras.layers.Dense(1)])


def of_another_feature(task_spec: TaskSpec, hparams: Hparams) -> Any:
    model = tf.keras.Sequential([tf.keras.Input((1,), name="height"), tf.keras.layers.Dense(2, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def neither(x: int, y: int) -> int:
    return x + y


def nan_model_fn(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Its loss is NaN."""
    loss = tf.compat.v1.get_variable("x", []) * float("nan")
    train_op = tf.compat.v1.train.get_global_step().assign_add(1)
    return tf_estimator.EstimatorSpec(mode, predictions={"logits": tf.zeros_like(labels)}, loss=loss, train_op=train_op)


def image_model_fn(features: dict[str, Any], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """One dense layer over 8x8 averages of the image, or of the difference between both images of a pair."""
    import tensorflow_transform as tft

    task_spec = params["task_spec"]
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    averages = [tf.nn.avg_pool2d(normalized(images, transform_output), 8, 8, "VALID") for images in features.values()]
    inputs = tf.keras.layers.Flatten()(tf.abs(averages[0] - averages[1]) if task_spec.pairs else averages[0])
    logits = tf.keras.layers.Dense(len(task_spec.classes))(inputs)
    if mode == tf_estimator.ModeKeys.PREDICT:
        top = tf.nn.top_k(logits, min(5, len(task_spec.classes))).indices
        return tf_estimator.EstimatorSpec(mode, predictions={"logits": logits, "top_1": top[:, 0], "top_5": top})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, 1))}
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


runs: list[None] = []  # one entry for each step of `counted` in this process


def trivial(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Sums its features."""
    parts = [x.values if isinstance(x, tf.SparseTensor) else x for x in features.values()]
    total = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in parts])
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
    with tf.control_dependencies([total]):
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
    return tf_estimator.EstimatorSpec(mode, loss=tf.square(weight) + 1.0, train_op=train_op)


def only_trained(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """The same, which cannot be evaluated."""
    if mode != tf_estimator.ModeKeys.TRAIN:
        raise ValueError(f"no {mode}")
    return trivial(features, labels, mode)


def counted(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """As `trivial`, and records each step, so that a test can define how long a step takes."""
    spec = trivial(features, labels, mode)
    return spec._replace(loss=spec.loss + tf.numpy_function(_note, [], tf.float32))


def _note() -> np.float32:
    runs.append(None)
    return np.float32(0)


def slow_steps(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Logistic regression of which a training step takes 20 ms, so that a task can be killed on the way."""
    logits = tf.squeeze(tf.keras.layers.Dense(1)(tf.expand_dims(features["age"], 1)), axis=1)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        return tf_estimator.EstimatorSpec(mode, loss=loss)
    with tf.control_dependencies([tf.numpy_function(_pause, [], tf.float32)]):
        train_op = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, tf.compat.v1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _pause() -> np.float32:
    time.sleep(0.02)
    return np.float32(0)
