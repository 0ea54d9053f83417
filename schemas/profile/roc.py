"""The area under the ROC curve: how well a score tells the rows of one class from all others."""

from __future__ import annotations

import numpy as np


def roc_areas(scores: np.ndarray, classes: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Returns the area under the ROC curve of each class against the rest, by Mann and Whitney's statistic.

    Rows of equal scores count half, as in scikit-learn's `roc_auc_score`.

    Args:
      scores: `[rows]`, without NaN.
      classes: the class of each row, int `[rows]`, from 0 to `count` - 1.
      count: how many classes there are.
      weights: `[rows]`; None: each row counts 1.

    Returns:
      float64 `[count]`; NaN for a class that no row or every row is of.

    >>> roc_areas(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]), 2).tolist()
    [0.25, 0.75]
    """
    weights = np.ones(len(scores)) if weights is None else weights
    distinct, places = np.unique(scores, return_inverse=True)
    by_score = np.bincount(places, weights, len(distinct))
    ranks = (np.cumsum(by_score) - by_score / 2)[places]  # the weight below a row, and half of that of its equals
    sizes = np.bincount(classes, weights, count)
    sums = np.bincount(classes, weights * ranks, count)
    with np.errstate(invalid="ignore"):
        areas: np.ndarray = (sums - sizes**2 / 2) / (sizes * (sizes.sum() - sizes))
    return areas


def roc_area(scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float:
    """Returns the area under the ROC curve of scores, each of which some positive and some negative rows have.

    Args:
      scores: `[n]`, without NaN.
      positive: the number or weight of the positive rows with each score, `[n]`.
      negative: the same of the negative rows.

    Returns:
      NaN where there are no positive or no negative rows.
    """
    classes = np.repeat([0, 1], len(scores))
    return float(roc_areas(np.tile(scores, 2), classes, 2, np.concatenate([negative, positive]))[1])
