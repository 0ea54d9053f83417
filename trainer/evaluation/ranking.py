"""How well a score tells one class from the rest: ROC and precision-recall curves, the areas under them, thresholds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

POINTS = 200  # of a curve that is stored or drawn
TABLE = tuple(round(0.05 * i, 2) for i in range(1, 20))  # the thresholds that a table lists
_LOWEST, _HIGHEST = -88.0, 17.0  # log odds: the smallest float32 that is not 0, the largest below 1


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The rows of a split by score, highest first.

    Attributes:
      scores: probabilities, falling, float64 `[points]`; of binned rows the lower edge of each bin.
      positives: the weight of the rows of the class with this score, float64 `[points]`.
      negatives: the weight of all other rows with this score, float64 `[points]`.
      exact: whether the rows of a point have the same score; false: scores that are close share a bin.
    """

    scores: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray
    exact: bool = True

    @property
    def undefined(self) -> str | None:
        """Why there is no curve; None where there is one."""
        if not self.positives.sum() > 0:
            return "no row of the split is of this class"
        if not self.negatives.sum() > 0:
            return "every row of the split is of this class"
        return None

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """False positive rates and true positive rates, rising from 0 to 1, float64 `[points + 1]` each."""
        return tuple(np.concatenate([[0.0], x.cumsum() / x.sum()]) for x in (self.negatives, self.positives))  # type: ignore[return-value]

    def precision_recall(self) -> tuple[np.ndarray, np.ndarray]:
        """Precision and recall at each score as the threshold, highest first, float64 `[points]` each."""
        taken = self.positives.cumsum()
        return taken / (taken + self.negatives.cumsum()), taken / self.positives.sum()

    def auc(self) -> float:
        """The area under the ROC curve, by trapezoids: equal scores count half (scikit-learn's `roc_auc_score`)."""
        false, true = self.roc()
        return float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2)

    def auc_error(self) -> float:
        """How far `auc` can be off, because rows of one bin could stand in any order; 0 where it is exact."""
        if self.exact:
            return 0.0
        return float(np.sum(self.positives * self.negatives) / (2 * self.positives.sum() * self.negatives.sum()))

    def average_precision(self) -> float:
        """The area under the precision-recall curve, by steps (scikit-learn's `average_precision_score`)."""
        precision, recall = self.precision_recall()
        return float(np.sum(np.diff(recall, prepend=0.0) * precision))

    def at(self, threshold: float) -> dict[str, float | None]:
        """What a decision by `score >= threshold` gives; None: a quotient by 0."""
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
        """The threshold with the highest F1."""
        true, chosen = self.positives.cumsum(), (self.positives + self.negatives).cumsum()
        return float(self.scores[np.argmax(2 * true / (self.positives.sum() + chosen))])

    def curves(self) -> dict[str, Any]:
        """Both curves and areas, as JSON holds them; the curves are thinned to about `POINTS` points."""
        if self.undefined:
            return {"undefined": self.undefined}
        false, true = self.roc()
        precision, recall = self.precision_recall()
        roc, pr = thinned(false, true), thinned(recall, precision)
        return {
            "auc": self.auc(),
            "auc_error": self.auc_error(),
            "average_precision": self.average_precision(),
            "share": float(self.positives.sum() / (self.positives.sum() + self.negatives.sum())),
            "roc": {"false_positive_rate": false[roc].tolist(), "true_positive_rate": true[roc].tolist()},
            "precision_recall": {"recall": recall[pr].tolist(), "precision": precision[pr].tolist()},
        }


def rank(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> Ranking:
    """The exact ranking of rows.

    Args:
      scores: `[rows]`, finite.
      positive: bool `[rows]`, whether a row is of the class.
      weights: `[rows]`; None: each row counts 1.
    """
    weights = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    distinct, place = np.unique(-scores.astype(np.float64), return_inverse=True)
    positives = np.bincount(place, weights * positive, len(distinct))
    negatives = np.bincount(place, weights * ~positive, len(distinct))
    return Ranking(-distinct, positives, negatives)


def bin_of(scores: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each probability: equally wide in log odds, from -88 to 17. int64, as `scores`."""
    scores = scores.astype(np.float64)
    with np.errstate(divide="ignore"):
        odds = np.log(scores) - np.log1p(-scores)
    share = (np.clip(odds, _LOWEST, _HIGHEST) - _LOWEST) / (_HIGHEST - _LOWEST)
    return np.minimum((share * bins).astype(np.int64), bins - 1)


def rank_bins(positives: np.ndarray, negatives: np.ndarray) -> Ranking:
    """The ranking of binned rows.

    Args:
      positives: the weight of the class's rows in each bin of `bin_of`, `[bins]`.
      negatives: the same of all other rows.
    """
    edges = _LOWEST + (_HIGHEST - _LOWEST) * np.arange(len(positives)) / len(positives)
    used = np.flatnonzero(positives + negatives)[::-1]
    return Ranking(1 / (1 + np.exp(-edges[used])), positives[used], negatives[used], exact=False)


def thinned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of about `POINTS` points that are evenly spread along a curve in the unit square, with both ends."""
    if len(x) <= POINTS:
        return np.arange(len(x))
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    picked = np.searchsorted(along, np.linspace(0, along[-1], POINTS))
    return np.unique(np.concatenate([[0], np.minimum(picked, len(x) - 1), [len(x) - 1]]))


def quotient(a: float, b: float) -> float | None:
    """a / b; None where b is 0."""
    return a / b if b else None


BUDGET = 64 << 20  # bytes of scores that are kept
MOST_CLASSES = 1000  # with more, no curves are made of each class
_BINS, _BINS_OF_MANY = 1 << 16, 1 << 12


class Scores:
    """What the curves of each class are made of. Of two classes, only the positive one has a curve.

    Attributes:
      classes: the ids of the classes that have curves.
    """

    def __init__(self, classes: int, *, positive: int = 1, budget: int = BUDGET) -> None:
        """Args:

        classes: how many the label has.
        positive: of two classes, the id of the one that has a curve.
        budget: the bytes of scores that are kept before they are counted in bins.
        """
        self.classes = () if classes > MOST_CLASSES else (positive,) if classes == 2 else tuple(range(classes))
        self._budget = budget
        self._kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._bytes = 0
        self._bins: np.ndarray | None = None  # [classes, 2, bins]: the weight of other rows, and of the class's own

    def add(self, labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> None:
        """Adds rows: class ids `[rows]`, float32 `[rows, classes]`, float64 `[rows]`."""
        if not self.classes:
            return
        batch = labels, probabilities[:, list(self.classes)], weights
        if self._bins is not None:
            self._count(*batch)
            return
        self._kept.append(batch)
        self._bytes += sum(array.nbytes for array in batch)
        if self._bytes > self._budget:
            bins = _BINS if len(self.classes) == 1 else _BINS_OF_MANY
            self._bins = np.zeros((len(self.classes), 2, bins))
            for one in self._kept:
                self._count(*one)
            self._kept = []

    def _count(self, labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> None:
        assert self._bins is not None  # noqa: S101 - the caller has made them
        for place, name in enumerate(self.classes):
            bins = self._bins.shape[2]
            codes = bin_of(scores[:, place], bins) + bins * (labels == name)
            self._bins[place] += np.bincount(codes, weights, 2 * bins).reshape(2, bins)

    def ranking(self, class_id: int) -> Ranking:
        """The ranking of all rows by their score of a class."""
        place = self.classes.index(class_id)
        if self._bins is not None:
            return rank_bins(self._bins[place, 1], self._bins[place, 0])
        if not self._kept:
            return rank(np.zeros(0), np.zeros(0, bool))
        labels = np.concatenate([batch[0] for batch in self._kept])
        scores = np.concatenate([batch[1][:, place] for batch in self._kept])
        return rank(scores, labels == class_id, np.concatenate([batch[2] for batch in self._kept]))
