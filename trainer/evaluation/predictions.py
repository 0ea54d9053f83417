"""Predictions beside labels, taken in batch by batch, in bounded memory.

Exact whatever the number of rows: the confusion matrix, everything by class, accuracy, losses, calibration. Curves are
exact while labels, scores and weights fit into 64 MB (3 million rows of two classes), and then made of bins; the report
says how far an area can be off. Slices and the worst rows are of the first 2,097,152 rows.
"""

from __future__ import annotations

import dataclasses
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

    def means(self) -> tuple[float | None, float | None]:
        """The mean probability, and the share of the rows that came true; None: no rows."""
        weight, probability, true = self._sums.sum(axis=1).tolist()
        return (probability / weight, true / weight) if weight > 0 else (None, None)

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
EPSILON = float(np.finfo(np.float32).eps)  # the least probability in a loss, as scikit-learn has it of float32


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model predicts beside the labels, all `[rows]`.

    Attributes:
      label: class ids, or numbers.
      weight: of each row.
      predicted: class ids; of numbers, the values.
      score: the probability of the second of two classes; else that of the predicted class; of numbers, the values.
      loss: the log loss of each row; of numbers, the squared residual. NaN: the row has no usable prediction.
    """

    label: np.ndarray
    weight: np.ndarray
    predicted: np.ndarray
    score: np.ndarray
    loss: np.ndarray

    @classmethod
    def of_classes(
        cls, label: np.ndarray, probabilities: np.ndarray, predicted: np.ndarray, weight: np.ndarray, *, binary: bool
    ) -> Answers:
        """From probabilities `[rows, classes]`; `binary`: the score is the probability of class 1."""
        rows = np.arange(len(label))
        score = probabilities[:, 1] if binary else probabilities[rows, predicted]
        own = probabilities[rows, label].astype(np.float64)
        return cls(label, weight, predicted, score, -np.log(np.clip(own, EPSILON, 1.0)))

    @classmethod
    def of_values(cls, label: np.ndarray, values: np.ndarray, weight: np.ndarray) -> Answers:
        """From predicted numbers."""
        return cls(label, weight, values, values, (values - label) ** 2)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """The rows of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] or [np.zeros(0, np.float32)] for name in _COLUMNS)
        return cls(*map(np.concatenate, columns))

    def take(self, rows: np.ndarray | slice) -> Answers:
        """Those of some rows."""
        return Answers(*(getattr(self, name)[rows] for name in _COLUMNS))

    def narrow(self) -> Answers:
        """The same in four bytes a value."""
        columns = (getattr(self, name) for name in _COLUMNS)
        return Answers(*(x.astype(np.float32 if x.dtype.kind == "f" else np.int32) for x in columns))

    @property
    def rows(self) -> int:
        return len(self.label)

    def worst(self, limit: int) -> np.ndarray:
        """The places of the rows with the highest loss, highest first; rows without a finite loss are left out."""
        finite = np.flatnonzero(np.isfinite(self.loss))
        if len(finite) > limit:
            finite = finite[np.argpartition(-self.loss[finite], limit)[:limit]]
        order: np.ndarray = finite[np.argsort(-self.loss[finite], kind="stable")]
        return order


_COLUMNS = tuple(field.name for field in dataclasses.fields(Answers))


class Collector:
    """What all kinds of predictions share: how many there are, which are no numbers, and the first rows themselves."""

    def __init__(self) -> None:
        self.rows = 0
        self.not_finite = 0  # rows whose prediction or weight is NaN or infinite: left out of everything else
        self._kept: list[Answers] = []
        self._room = MOST_ROWS

    @property
    def kept(self) -> Answers:
        """The first rows of the split in its order. The job has shuffled the split: they are a fair sample."""
        self._kept = [Answers.joined(self._kept)] if self._kept else []
        return Answers.joined(self._kept)

    def _keep(self, answers: Answers, usable: np.ndarray) -> Answers:
        """Keeps the rows while there is room; returns those with a usable prediction."""
        if self._room:
            loss = np.where(usable, answers.loss, np.nan)
            self._kept.append(dataclasses.replace(answers, loss=loss).take(slice(self._room)).narrow())
            self._room -= self._kept[-1].rows
        return answers if usable.all() else answers.take(usable)

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
      positive: of two classes, the id of the one that precision, recall, curves and calibration are of.
      class_weights: the factors by which the classes count in `balanced`, by id; empty: it is not measured.
      weight: the sum of the weights of the rows that have a prediction.
      loss, brier: weighted sums of the log loss and of the Brier score.
      balanced: the sums of weight x factor of its class, and of that x log loss.
      top_5: the weight of the rows whose class is among the five most probable ones; of equals, the lower ids.
    """

    def __init__(
        self,
        names: Sequence[str],
        class_weights: Sequence[float] = (),
        *,
        positive: int = 1,
        budget: int = BUDGET,
    ) -> None:
        super().__init__()
        self.positive = positive
        self.names, self.class_weights = tuple(names), tuple(class_weights)
        self.balanced = np.zeros(2)
        self.confusion = Confusion(len(self.names))
        self.scores = Scores(len(self.names), positive=positive, budget=budget)
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
        answers = Answers.of_classes(labels, probabilities, predicted, given, binary=self.binary)
        answers = self._keep(answers, usable)
        labels, predicted, given = answers.label, answers.predicted, answers.weight
        probabilities = probabilities if usable.all() else probabilities[usable]
        own = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0].astype(np.float64)
        self.weight += float(given.sum())
        self.loss += float(given @ answers.loss)
        if self.class_weights:
            factors = given * np.asarray(self.class_weights)[labels]
            self.balanced += factors.sum(), factors @ answers.loss
        squares = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64)
        self.brier += float(given @ (squares - 2 * own + 1)) / (2 if self.binary else 1)
        self.top_5 += float(given @ _among_five(probabilities, labels))
        self.confusion.add(labels, predicted, given)
        self.scores.add(labels, probabilities, given)
        calibrated = np.full(len(labels), self.positive) if self.binary else predicted
        probability = np.take_along_axis(probabilities, calibrated[:, None], axis=1)[:, 0]
        self.calibration.add(probability, labels == calibrated, given)


def _among_five(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether fewer than five classes are more probable than the label's, or equal and before it, bool `[rows]`."""
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)
    before = np.arange(probabilities.shape[1]) < labels[:, None]
    ahead: np.ndarray = (probabilities > own).sum(axis=1) + ((probabilities == own) & before).sum(axis=1)
    return ahead < 5


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
        answers = self._keep(Answers.of_values(labels, values, given), usable)
        labels, residual, given = answers.label, answers.predicted - answers.label, answers.weight
        if self.first is None and len(labels):
            self.first = float(labels[0])
        labels = labels - (self.first or 0.0)
        parts = (np.ones(len(labels)), labels, labels**2, residual, np.abs(residual), answers.loss)
        self.sums += np.array([float(given @ part) for part in parts])
