"""Models for the doctor to examine: one that takes almost no time, and one whose steps are counted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator

runs: list[None] = []  # one entry for each step of `counted` in this process


def trivial(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Sums its features."""
    parts = [x.values if isinstance(x, tf.SparseTensor) else x for x in features.values()]
    total = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in parts])
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
    with tf.control_dependencies([total]):
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
    return tf_estimator.EstimatorSpec(mode, loss=tf.square(weight) + 1.0, train_op=train_op)


def counted(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """The same, and records each step, so that a test can define how long a step takes."""
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
