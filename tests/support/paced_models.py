"""Models that take next to no time, and much of it, for the same input."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator


def trivial(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """Sums what it is given."""
    parts = [x.values if isinstance(x, tf.SparseTensor) else x for x in features.values()]
    total = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in parts])
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
    with tf.control_dependencies([total]):
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
    return tf_estimator.EstimatorSpec(mode, loss=tf.square(weight) + 1.0, train_op=train_op)


def heavy(features: dict[str, Any], labels: Any, mode: str) -> Any:
    """The same, after tens of milliseconds of matrix products."""
    spec = trivial(features, labels, mode)
    x = tf.ones([800, 800]) * tf.cast(tf.compat.v1.train.get_global_step(), tf.float32)
    for _ in range(8):
        x = tf.tanh(x @ x)
    return spec._replace(loss=spec.loss + 1e-9 * tf.reduce_mean(x))
