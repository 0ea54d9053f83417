"""A small problem that a linear model can solve, for the tests of Estimator itself: no dataset, no schema.

`x` is float32 [batch, 3], `word` string [batch]; the label is int64 [batch], 1 where x sums to more than 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.estimator import tf_estimator

ROWS = 256
_X = np.random.default_rng(7).normal(size=(ROWS, 3)).astype(np.float32)
_SUM = _X.sum(axis=1)


def features() -> dict[str, np.ndarray]:
    return {"x": _X, "word": np.where(_SUM > 0, b"up", b"down")}


def train_input() -> Callable[[], tf.data.Dataset]:
    return lambda: eval_input()().unbatch().shuffle(ROWS, seed=1).repeat().batch(64)


def eval_input() -> Callable[[], tf.data.Dataset]:
    return lambda: tf.data.Dataset.from_tensor_slices((features(), (_SUM > 0).astype(np.int64))).batch(64)


def serving_input() -> Any:
    """Raw features by name: `x` float32 [?, 3] and `word` string [?]."""
    receivers = {
        "x": tf.compat.v1.placeholder(tf.float32, [None, 3], name="x"),
        "word": tf.compat.v1.placeholder(tf.string, [None], name="word"),
    }
    return tf_estimator.export.ServingInputReceiver(receivers, receivers)


def logistic_model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Logistic regression of "sign" on x by plain gradient descent at `params["learning_rate"]`."""
    with tf.compat.v1.variable_scope("logistic"):
        weights = tf.compat.v1.get_variable("weights", [3, 1], initializer=tf.compat.v1.zeros_initializer())
        bias = tf.compat.v1.get_variable("bias", [1], initializer=tf.compat.v1.zeros_initializer())
    logit = tf.squeeze(tf.matmul(features["x"], weights) + bias, axis=-1)
    predictions = {"probability": tf.sigmoid(logit)}
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logit))
    if mode == tf_estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.cast(logit > 0, tf.int64))
        return tf_estimator.EstimatorSpec(mode, predictions, loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_or_create_global_step())
    return tf_estimator.EstimatorSpec(mode, predictions, loss, train_op)


def logistic_estimator(model_dir: Path, **run_config: Any) -> Any:
    return tf_estimator.Estimator(
        logistic_model_fn,
        config=tf_estimator.RunConfig(model_dir=str(model_dir), tf_random_seed=1, **run_config),
        params={"learning_rate": 0.5},
    )
