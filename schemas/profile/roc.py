"""The area under the ROC curve: how well a score tells the rows of one class from all others."""

from __future__ import annotations

import numpy as np


def roc_areas(scores: np.ndarray, classes: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Returns the area under the ROC curve of each class against all other classes.

    The area is computed from the ranks of the scores (Mann and Whitney's statistic). A pair of rows with equal scores
    counts half, as in scikit-learn's `roc_auc_score`.

    Args:
      scores: `[rows]`, without NaN.
      classes: the class of each row, int `[rows]`, from 0 to `count` - 1.
      count: how many classes there are.
      weights: the weight of each row, `[rows]`; with None, each row has the weight 1.

    Returns:
      The areas, float64 `[count]`. The area of a class is NaN if the class has no rows or all rows.

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
    """Returns the area under the ROC curve, given how many positive and negative rows have each score.

    Args:
      scores: `[n]`, without NaN.
      positive: the number or weight of the positive rows with each score, `[n]`.
      negative: the number or weight of the negative rows with each score, `[n]`.

    Returns:
      The area, or NaN if all rows are positive or all rows are negative.
    """
    return float(roc_areas_of_counts(scores[:, None], positive[:, None], negative[:, None])[0])


def roc_areas_of_counts(scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Returns the areas under the ROC curves of several classes at once, as `roc_area` does for one.

    Args:
      scores: `[n, classes]`, without NaN.
      positive: the number or weight of the positive rows with each score, `[n, classes]`.
      negative: the number or weight of the negative rows with each score, `[n, classes]`.

    Returns:
      The areas, float64 `[classes]`. An area is NaN if all rows of its column are positive, or all are negative.
    """
    order = np.argsort(scores, axis=0), np.arange(scores.shape[1])
    scores, positive, negative = scores[order], positive[order], negative[order]
    places = np.arange(len(scores))[:, None]
    differs = scores[1:] != scores[:-1]
    edge = np.ones_like(scores[:1], bool)
    # For each score, the places of the first and the last score that equal it, in its column of sorted scores.
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs]), places, 0))
    last = np.minimum.accumulate(np.where(np.concatenate([differs, edge]), places, len(scores))[::-1])[::-1]
    below = np.concatenate([np.zeros_like(negative[:1]), np.cumsum(negative, axis=0)])
    # Twice the negative rows below each score, counting those with an equal score half.
    lower = below[first, order[1]] + below[last + 1, order[1]]
    with np.errstate(invalid="ignore"):
        areas: np.ndarray = (positive * lower).sum(0) / (2 * positive.sum(0) * negative.sum(0))
    return areas
