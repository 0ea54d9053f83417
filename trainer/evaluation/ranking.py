"""How well a score tells one class from the rest: ROC and precision-recall curves, the areas under them, thresholds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from schemas.profile.roc import roc_area

POINTS = 200  # of a curve that is stored or drawn
TABLE = tuple(round(0.05 * i, 2) for i in range(1, 20))  # the thresholds that a table lists


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The weights of the positive and negative rows at each score, for the curves of one class.

    A row is positive if it belongs to the class, and negative otherwise.

    Attributes:
      scores: the distinct scores, from the highest to the lowest, float64 `[points]`.
      positives: the weight of the rows of the class with this score, float64 `[points]`.
      negatives: the weight of all other rows with this score, float64 `[points]`.
    """

    scores: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray

    @property
    def defined(self) -> bool:
        """Whether the curves are defined: there are both positive and negative rows."""
        return bool(self.positives.sum() > 0 and self.negatives.sum() > 0)

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns false and true positive rates, rising from 0 to 1, float64 `[points + 1]` each."""
        return tuple(np.concatenate([[0.0], x.cumsum() / x.sum()]) for x in (self.negatives, self.positives))  # type: ignore[return-value]

    def precision_recall(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns precision and recall at each score as the threshold, highest first, float64 `[points]` each."""
        taken = self.positives.cumsum()
        return taken / (taken + self.negatives.cumsum()), taken / self.positives.sum()

    def auc(self) -> float:
        """Returns the area under the ROC curve; equal scores count half (scikit-learn's `roc_auc_score`)."""
        return roc_area(self.scores, self.positives, self.negatives)

    def average_precision(self) -> float:
        """Returns the area under the precision-recall curve, by steps (scikit-learn's `average_precision_score`)."""
        precision, recall = self.precision_recall()
        return float(np.sum(np.diff(recall, prepend=0.0) * precision))

    def at(self, threshold: float) -> dict[str, float | None]:
        """Returns precision, recall and other measures of choosing rows with `score >= threshold`.

        A measure that would divide by 0 is None.
        """
        chosen = self.scores >= threshold
        true, false = float(self.positives[chosen].sum()), float(self.negatives[chosen].sum())
        positives, negatives = float(self.positives.sum()), float(self.negatives.sum())
        precision, recall = quotient(true, true + false), quotient(true, positives)
        return {
            "threshold": threshold,
            "precision": precision,
            "recall": recall,
            "f1": quotient(2 * true, positives + true + false),
            "false_positive_rate": quotient(false, negatives),
            "accuracy": quotient(true + negatives - false, positives + negatives),
            "share_chosen": quotient(true + false, positives + negatives),
        }

    def best_f1(self) -> float:
        """Returns the threshold with the highest F1."""
        true, chosen = self.positives.cumsum(), (self.positives + self.negatives).cumsum()
        return float(self.scores[np.argmax(2 * true / (self.positives.sum() + chosen))])

    def curves(self) -> dict[str, Any]:
        """Returns both curves, of about `POINTS` points each, and the areas under them, as values for JSON."""
        false, true = self.roc()
        precision, recall = self.precision_recall()
        roc, pr = _thinned(false, true), _thinned(recall, precision)
        return {
            "auc": self.auc(),
            "average_precision": self.average_precision(),
            "share": float(self.positives.sum() / (self.positives.sum() + self.negatives.sum())),
            "roc": {"false_positive_rate": false[roc].tolist(), "true_positive_rate": true[roc].tolist()},
            "precision_recall": {"recall": recall[pr].tolist(), "precision": precision[pr].tolist()},
        }


def rank(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> Ranking:
    """Ranks rows by their score.

    Args:
      scores: `[rows]`, finite.
      positive: bool `[rows]`, whether a row is of the class.
      weights: `[rows]`.
    """
    distinct, place = np.unique(-scores.astype(np.float64), return_inverse=True)
    positives = np.bincount(place, weights * positive, len(distinct))
    negatives = np.bincount(place, weights * ~positive, len(distinct))
    return Ranking(-distinct, positives, negatives)


def _thinned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of about `POINTS` points, evenly spread along a curve in the unit square, with both ends."""
    if len(x) <= POINTS:
        return np.arange(len(x))
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    picked = np.searchsorted(along, np.linspace(0, along[-1], POINTS))
    return np.unique(np.concatenate([[0], np.minimum(picked, len(x) - 1), [len(x) - 1]]))


def quotient(a: float, b: float) -> float | None:
    """Returns a / b; None where b is 0."""
    return a / b if b else None
