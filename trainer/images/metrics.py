"""How well classes are told apart: recall among the first guesses."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def recall_at(k: int, labels: tf.Tensor, logits: tf.Tensor) -> tuple[Any, Any]:
    """An `eval_metric_ops` entry: the share of all examples whose class is among the `k` with the highest logits.

    Of equal logits the class with the lower id goes first, as in `tf.argmax`: a model that says the same of all classes
    is not right about each of them.

    Args:
      k: with fewer classes than that, all count.
      labels: class ids, int64 `[batch]`.
      logits: float32 `[batch, classes]`.
    """
    ids = top(k, logits)
    hits = tf.reduce_any(tf.equal(ids, labels[:, None]), axis=1)
    return tf.compat.v1.metrics.mean(tf.cast(hits, tf.float32))


def top(k: int, logits: tf.Tensor) -> tf.Tensor:
    """The ids of the `k` highest logits, highest first: int64 `[batch, min(k, classes)]`."""
    return tf.cast(tf.math.top_k(logits, min(k, logits.shape[-1])).indices, tf.int64)
