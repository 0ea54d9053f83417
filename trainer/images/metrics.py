"""How well classes are told apart: recall among the first guesses, and the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def roc_curve(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exact ROC curve, one point for each distinct score.

    Args:
      labels: 0 or 1, `[examples]`.
      scores: `[examples]`, higher for 1.

    Returns:
      false positive rates and true positive rates, float64 `[points]`, from 0 to 1; where a class does not occur, its
      rate is 0 throughout.
    """
    order = np.argsort(-scores, kind="stable")
    labels, scores = np.asarray(labels)[order], np.asarray(scores)[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # of each run of equal scores
    true = np.concatenate([[0], np.cumsum(labels == 1)[last]])
    false = np.concatenate([[0], np.cumsum(labels == 0)[last]])
    return false / max(1, false[-1]), true / max(1, true[-1])


def area_under(false_positives: np.ndarray, true_positives: np.ndarray) -> float:
    """The area under a ROC curve, by trapezoids: equal scores count half."""
    return float(np.sum(np.diff(false_positives) * (true_positives[1:] + true_positives[:-1])) / 2)
