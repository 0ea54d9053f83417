"""A small problem that a linear model can solve, for the tests of Estimator itself: no dataset, no schema.

`x` is float32 [batch, 3], `word` string [batch]; the label depends on x alone:

    "sign":   int64 [batch], 1 where x sums to more than 0
    "thirds": int64 [batch], 0, 1 or 2: the third of the sum's range
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

LABELS = {
    "sign": (_SUM > 0).astype(np.int64),
    "thirds": np.digitize(_SUM, [-0.7, 0.7]).astype(np.int64),
}


def features() -> dict[str, np.ndarray]:
    return {"x": _X, "word": np.where(_SUM > 0, b"up", b"down")}


def feature_columns() -> tuple[list[Any], list[Any]]:
    """Columns for a linear model, and for a deep one. Only the deep one reads the word, which determines the sign."""
    word = tf.feature_column.categorical_column_with_vocabulary_list("word", ["up", "down"])
    x = tf.feature_column.numeric_column("x", shape=(3,))
    return [x], [x, tf.feature_column.embedding_column(word, dimension=2)]


def train_input(label: str = "sign") -> Callable[[], tf.data.Dataset]:
    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices((features(), LABELS[label]))
        return rows.shuffle(ROWS, seed=1).repeat().batch(64)

    return input_fn


def eval_input(label: str = "sign") -> Callable[[], tf.data.Dataset]:
    def input_fn() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((features(), LABELS[label])).batch(64)

    return input_fn


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


def logistic_estimator(
    model_dir: Path,
    *,
    learning_rate: float = 0.5,
    model_fn: Callable[..., Any] = logistic_model_fn,
    warm_start_from: Any = None,
    **run_config: Any,
) -> Any:
    return tf_estimator.Estimator(
        model_fn,
        config=tf_estimator.RunConfig(model_dir=str(model_dir), tf_random_seed=1, **run_config),
        params={"learning_rate": learning_rate},
        warm_start_from=warm_start_from,
    )


def scalars(folder: Path, tag: str) -> dict[int, float]:
    """Step -> value, of one scalar summary in a folder's event files."""
    return {
        event.step: value.simple_value
        for path in sorted(folder.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == tag
    }
