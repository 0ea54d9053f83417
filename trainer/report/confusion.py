"""Which class was taken for which: exact counts, of any number of classes."""

from __future__ import annotations

import numpy as np

DENSE = 1000  # classes: up to here a matrix is held; beyond it, only the pairs that occur
_COMPACT = 1 << 20  # pairs that are gathered before equal ones are added up


class Confusion:
    """The weight of the rows for each pair of true and predicted class."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._dense = np.zeros(classes * classes) if classes <= DENSE else None
        self._codes: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._gathered = 0

    def add(self, labels: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> None:
        """Adds rows: class ids int64 `[rows]`, weights float64 `[rows]`."""
        codes = labels.astype(np.int64) * self.classes + predicted
        if self._dense is not None:
            self._dense += np.bincount(codes, weights, self.classes**2)
            return
        self._codes.append(codes)
        self._weights.append(weights)
        self._gathered += len(codes)
        if self._gathered > _COMPACT:
            self._compact()
            self._gathered = 0

    def _compact(self) -> tuple[np.ndarray, np.ndarray]:
        codes, weights = np.concatenate([[], *self._codes]).astype(np.int64), np.concatenate([[], *self._weights])
        distinct, place = np.unique(codes, return_inverse=True)
        self._codes, self._weights = [distinct], [np.bincount(place, weights, len(distinct))]
        return self._codes[0], self._weights[0]

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs that occur: true class, predicted class, weight, each `[pairs]`."""
        if self._dense is not None:
            codes = np.flatnonzero(self._dense)
            weights = self._dense[codes]
        else:
            codes, weights = self._compact()
        return codes // self.classes, codes % self.classes, weights

    def margins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By class: the weight of its rows (support), of the rows predicted as it, and of those that are both."""
        true, predicted, weights = self.pairs()
        both = true == predicted
        return (
            np.bincount(true, weights, self.classes),
            np.bincount(predicted, weights, self.classes),
            np.bincount(true[both], weights[both], self.classes),
        )

    def matrix(self, ids: np.ndarray) -> np.ndarray:
        """The part of the matrix with these classes, true by predicted, `[len(ids), len(ids)]`."""
        place = np.full(self.classes, -1)
        place[ids] = np.arange(len(ids))
        true, predicted, weights = self.pairs()
        inside = (place[true] >= 0) & (place[predicted] >= 0)
        codes = place[true[inside]] * len(ids) + place[predicted[inside]]
        return np.bincount(codes, weights[inside], len(ids) ** 2).reshape(len(ids), len(ids))

    def worst_pairs(self, limit: int) -> list[tuple[int, int, float]]:
        """The most frequent mistakes: true class, predicted class, weight."""
        true, predicted, weights = self.pairs()
        wrong = np.flatnonzero(true != predicted)
        order = wrong[np.argsort(-weights[wrong], kind="stable")][:limit]
        return [(int(true[i]), int(predicted[i]), float(weights[i])) for i in order]

    def most_confused(self, limit: int) -> np.ndarray:
        """The ids of the classes with the highest weight of mistakes, made for them or as them; rising."""
        support, predicted, correct = self.margins()
        mistakes = support + predicted - 2 * correct
        occurs = np.flatnonzero(support + predicted)
        return np.sort(occurs[np.argsort(-mistakes[occurs], kind="stable")][:limit])
