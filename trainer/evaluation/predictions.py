"""Which class was taken for which: exact counts, of any number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.evaluation.ranking import BUDGET, Scores

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


BINS = 10


class Calibration:
    """Rows in ten equally wide bins of their probability (scikit-learn's `calibration_curve`, `strategy="uniform"`)."""

    def __init__(self) -> None:
        self._sums = np.zeros((3, BINS))  # weight, weight x probability, weight of the rows that came true

    def add(self, probabilities: np.ndarray, true: np.ndarray, weights: np.ndarray) -> None:
        """Adds rows: `[rows]` each; `true` is bool."""
        bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], probabilities)
        for place, each in enumerate((weights, weights * probabilities, weights * true)):
            self._sums[place] += np.bincount(bins, each, BINS)

    def error(self) -> float | None:
        """The expected calibration error: the mean distance of probability and share over the rows; None: no rows.

        Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.
        """
        weight, probability, true = self._sums
        return float(np.abs(probability - true).sum() / weight.sum()) if weight.sum() > 0 else None

    def content(self) -> dict[str, Any]:
        """The bins that hold rows, as JSON holds them."""
        used = self._sums[:, self._sums[0] > 0]
        return {
            "expected_calibration_error": self.error(),
            "weight": used[0].tolist(),
            "mean_probability": (used[1] / used[0]).tolist(),
            "share": (used[2] / used[0]).tolist(),
        }


MOST_ROWS = 1 << 21  # 2,097,152: of 20 bytes each, 42 MB


class KeptRows:
    """Numbers by row, of the first `most` rows of a split. The job has shuffled the split: they are a fair sample."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._parts: dict[str, list[np.ndarray]] = {}
        self.rows = 0  # that are kept

    def add(self, **values: np.ndarray) -> None:
        """Adds rows: arrays `[rows]` by name, the same names each time. Floats are kept as float32, others as int32."""
        room = self._most - self.rows
        if room <= 0:
            return
        for name, array in values.items():
            dtype = np.float32 if array.dtype.kind == "f" else np.int32
            self._parts.setdefault(name, []).append(array[:room].astype(dtype))
        self.rows += min(room, len(next(iter(values.values()))))

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of all rows that are kept, `[rows]`."""
        parts = self._parts.get(name, [])
        if len(parts) != 1:
            parts[:] = [np.concatenate(parts) if parts else np.zeros(0, np.float32)]
            self._parts[name] = parts
        return parts[0]

    def worst(self, limit: int) -> np.ndarray:
        """The places of the rows with the highest loss, highest first; rows without a finite loss are left out."""
        loss = self["loss"]
        finite = np.flatnonzero(np.isfinite(loss))
        if len(finite) > limit:
            finite = finite[np.argpartition(-loss[finite], limit)[:limit]]
        order: np.ndarray = finite[np.argsort(-loss[finite], kind="stable")]
        return order


EPSILON = float(np.finfo(np.float32).eps)  # the least probability in a loss, as scikit-learn has it of float32


class Collector:
    """What all kinds of predictions share: how many there are, and which of them are no numbers."""

    def __init__(self) -> None:
        self.rows = 0
        self.not_finite = 0  # rows whose prediction or weight is NaN or infinite: left out of everything else
        self.kept = KeptRows()

    def _usable(self, predictions: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Which rows have a prediction, bool `[rows]`, and all weights, float64 `[rows]`."""
        rows = len(predictions)
        usable = np.isfinite(predictions.reshape(rows, -1)).all(axis=1) if rows else np.zeros(0, bool)
        given = np.ones(rows) if weights is None else weights.reshape(-1).astype(np.float64)
        usable &= np.isfinite(given)
        self.rows += rows
        self.not_finite += int(rows - usable.sum())
        return usable, given


class ClassCollector(Collector):
    """Predictions of classes.

    Attributes:
      names: of the classes, by id.
      weight: the sum of the weights of the rows that have a prediction.
      loss, brier: weighted sums of the log loss and of the Brier score.
      top_5: the weight of the rows whose class is among the five most probable ones.
    """

    def __init__(self, names: Sequence[str], *, budget: int = BUDGET) -> None:
        super().__init__()
        self.names = tuple(names)
        self.confusion = Confusion(len(self.names))
        self.scores = Scores(len(self.names), budget=budget)
        self.calibration = Calibration()
        self.weight = self.loss = self.brier = self.top_5 = 0.0

    @property
    def binary(self) -> bool:
        return len(self.names) == 2

    def add(
        self,
        labels: np.ndarray,
        probabilities: np.ndarray,
        weights: np.ndarray | None = None,
        class_ids: np.ndarray | None = None,
    ) -> None:
        """Adds a batch.

        Args:
          labels: class ids, `[rows]`.
          probabilities: `[rows, classes]`.
          weights: `[rows]`; None: each row counts 1.
          class_ids: the predicted classes, `[rows]`; None: the most probable ones.
        """
        labels = labels.reshape(-1).astype(np.int64)
        predicted = probabilities.argmax(axis=1) if class_ids is None else class_ids.reshape(-1).astype(np.int64)
        usable, given = self._usable(probabilities, weights)
        own = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0].astype(np.float64)
        loss = np.where(usable, -np.log(np.clip(own, EPSILON, 1.0)), np.nan)
        chosen = np.take_along_axis(probabilities, predicted[:, None], axis=1)[:, 0]
        score = probabilities[:, 1] if self.binary else chosen
        self.kept.add(label=labels, predicted=predicted, score=score, loss=loss, weight=given)
        if not usable.all():
            labels, predicted, probabilities = labels[usable], predicted[usable], probabilities[usable]
            given, loss, own, chosen = given[usable], loss[usable], own[usable], chosen[usable]
        self.weight += float(given.sum())
        self.loss += float(given @ loss)
        squares = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64)
        self.brier += float(given @ (squares - 2 * own + 1)) / (2 if self.binary else 1)
        higher = (probabilities > own[:, None].astype(probabilities.dtype)).sum(axis=1)
        self.top_5 += float(given @ (higher < 5))
        self.confusion.add(labels, predicted, given)
        self.scores.add(labels, probabilities, given)
        if self.binary:
            self.calibration.add(probabilities[:, 1], labels == 1, given)
        else:
            self.calibration.add(chosen, labels == predicted, given)


class ValueCollector(Collector):
    """Predictions of numbers.

    Attributes:
      sums: of the weights; and weighted, of label, label squared, residual, its size and its square. A residual is
        prediction minus label; labels are counted from the first one, so that their squares do not swamp their spread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sums = np.zeros(6)
        self.first: float | None = None

    def add(self, labels: np.ndarray, values: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Adds a batch: labels, predicted values and weights, `[rows]` each."""
        labels, values = labels.reshape(-1).astype(np.float64), values.reshape(-1).astype(np.float64)
        usable, given = self._usable(values, weights)
        residual = values - labels
        loss = np.where(usable, residual**2, np.nan)
        self.kept.add(label=labels, score=values, loss=loss, weight=given)
        labels, residual, given = labels[usable], residual[usable], given[usable]
        if self.first is None and len(labels):
            self.first = float(labels[0])
        labels = labels - (self.first or 0.0)
        parts = (np.ones(len(labels)), labels, labels**2, residual, np.abs(residual), residual**2)
        self.sums += np.array([float(given @ part) for part in parts])
