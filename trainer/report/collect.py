"""Takes in the predictions of an evaluation, batch by batch, in bounded memory.

Exact whatever the number of rows: the confusion matrix, everything by class, accuracy, losses, calibration. Curves are
exact while labels, scores and weights fit into 64 MB (3 million rows of two classes), and then made of bins; the report
says how far an area can be off. Slices and the worst rows are of the first 2,097,152 rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.report.calibration import Calibration
from trainer.report.confusion import Confusion
from trainer.report.kept_rows import KeptRows
from trainer.report.scores import BUDGET, Scores

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
