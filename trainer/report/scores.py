"""The scores of all rows by class: themselves while they fit into memory, then counted in bins."""

from __future__ import annotations

import numpy as np

from trainer.report.ranking import Ranking, bin_of, rank, rank_bins

BUDGET = 64 << 20  # bytes of scores that are kept
MOST_CLASSES = 1000  # with more, no curves are made of each class
_BINS, _BINS_OF_MANY = 1 << 16, 1 << 12


class Scores:
    """What the curves of each class are made of. Of two classes, only the second one has a curve.

    Attributes:
      classes: the ids of the classes that have curves.
    """

    def __init__(self, classes: int, *, budget: int = BUDGET) -> None:
        """Args:

        classes: how many the label has.
        budget: the bytes of scores that are kept before they are counted in bins.
        """
        self.classes = () if classes > MOST_CLASSES else (1,) if classes == 2 else tuple(range(classes))
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
