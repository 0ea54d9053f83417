"""The predictions of an evaluation as one table: of each row its label, weight, prediction, score and loss.

Metrics, slices, the worst rows, the gate of a promotion and the comparison of two models are functions of it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.exports.model import CLASS_ID, PROBABILITIES, VALUE
from trainer.evaluation.ranking import Ranking, rank

EPSILON = float(np.finfo(np.float32).eps)  # the least probability in a loss, as scikit-learn has it of float32
PROBABILITY_BYTES = 64 << 20  # of more than two classes, so many bytes of all classes' probabilities are kept
MOST_CLASSES = 1000  # with more, none are kept


@dataclasses.dataclass(frozen=True)
class PredictionTarget:
    """What is predicted: a class, or, without names of classes, a number.

    Attributes:
      names: of the classes, by id.
      positive: of two classes, the id of the one that precision, recall, curves and calibration are of.
      class_weights: the factors of the classes in `balanced_log_loss`, by id; empty: it is not measured.
    """

    names: tuple[str, ...] = ()
    positive: int = 1
    class_weights: tuple[float, ...] = ()

    @property
    def binary(self) -> bool:
        """Whether it is one of two classes."""
        return len(self.names) == 2


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a model predicts beside the labels; each column `[rows]`.

    Attributes:
      label: class ids, or numbers.
      weight: of each row, float64.
      predicted: class ids; of numbers, the values.
      score: the probability of the positive one of two classes, of more that of the predicted one; or the value.
      loss: the log loss of each row; of numbers, the squared residual. NaN: the prediction or the weight is no number.
      target: what is predicted.
      brier: the Brier score of each row; None: of numbers.
      among_five: whether the label's class is among the five most probable ones (of equals, the lower ids); likewise.
      probabilities: of more than two classes, those of the first rows, float32 `[some rows, classes]`.
    """

    label: np.ndarray
    weight: np.ndarray
    predicted: np.ndarray
    score: np.ndarray
    loss: np.ndarray
    target: PredictionTarget = PredictionTarget()
    brier: np.ndarray | None = None
    among_five: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    @classmethod
    def of_classes(
        cls,
        target: PredictionTarget,
        label: np.ndarray,
        probabilities: np.ndarray,
        predicted: np.ndarray,
        weight: np.ndarray,
    ) -> Predictions:
        """From probabilities `[rows, classes]`."""
        rows = np.arange(len(label))
        usable = np.isfinite(probabilities).all(axis=1) & np.isfinite(weight)
        if not usable.all():
            probabilities = np.where(usable[:, None], probabilities, np.float32(0))
        own = probabilities[rows, label][:, None]
        loss = np.where(usable, -np.log(np.clip(own[:, 0].astype(np.float64), EPSILON, 1.0)), np.nan)
        squares = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64)
        brier = (squares - 2 * own[:, 0].astype(np.float64) + 1) / (2 if target.binary else 1)
        before = np.arange(probabilities.shape[1]) < label[:, None]
        ahead = (probabilities > own).sum(axis=1) + ((probabilities == own) & before).sum(axis=1)
        score = probabilities[:, target.positive] if target.binary else probabilities[rows, predicted]
        of_all = None if target.binary else probabilities
        return cls(label, weight, predicted, score, loss, target, brier, ahead < 5, of_all)

    @classmethod
    def of_values(cls, label: np.ndarray, values: np.ndarray, weight: np.ndarray) -> Predictions:
        """From predicted numbers."""
        usable = np.isfinite(values) & np.isfinite(weight)
        with np.errstate(invalid="ignore"):
            return cls(label, weight, values, values, np.where(usable, (values - label) ** 2, np.nan))

    @classmethod
    def of_batch(cls, target: PredictionTarget, batch: Mapping[str, np.ndarray]) -> Predictions:
        """From `labels`, the predictions as `trainer.export.outputs` names them, and `weights` if there are any."""
        labels = batch["labels"].reshape(-1)
        weights = batch.get("weights")
        weight = np.ones(len(labels)) if weights is None else weights.reshape(-1).astype(np.float64)
        if not target.names:
            return cls.of_values(labels.astype(np.float64), batch[VALUE].reshape(-1).astype(np.float64), weight)
        predicted = batch[CLASS_ID].reshape(-1).astype(np.int64)
        return cls.of_classes(target, labels.astype(np.int64), batch[PROBABILITIES], predicted, weight)

    @classmethod
    def joined(cls, target: PredictionTarget, parts: Sequence[Predictions]) -> Predictions:
        """The rows of all parts, one after another."""
        if not parts:
            return cls.of_batch(target, _nothing(target))
        columns = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in dataclasses.fields(cls)
            if isinstance(getattr(parts[0], field.name), np.ndarray)
        }
        return cls(**columns, target=target)

    def take(self, rows: np.ndarray) -> Predictions:
        """Some of the rows, without the probabilities of all classes."""
        columns = {
            field.name: getattr(self, field.name)[rows]
            for field in dataclasses.fields(self)
            if isinstance(getattr(self, field.name), np.ndarray) and field.name != "probabilities"
        }
        return Predictions(**columns, target=self.target)

    @property
    def usable(self) -> np.ndarray:
        """Whether a row's prediction and weight are numbers, bool `[rows]`."""
        return np.isfinite(self.loss)

    def without_unusable(self) -> Predictions:
        """The usable rows, with the probabilities of all classes, as far as they are there."""
        usable, probabilities = self.usable, self.probabilities
        if usable.all():
            return self
        if probabilities is not None:
            probabilities = probabilities[usable[: len(probabilities)]]
        return dataclasses.replace(self.take(usable), probabilities=probabilities)

    @functools.cached_property
    def rankings(self) -> Mapping[int, Ranking]:
        """By class, the rows by their score of it: of two classes the positive one; of more, those with probabilities.

        All rows must be usable.
        """
        if self.target.binary:
            positive = self.target.positive
            return {positive: rank(self.score, self.label == positive, self.weight)}
        if self.probabilities is None or len(self.target.names) > MOST_CLASSES:
            return {}
        rows = len(self.probabilities)
        classes = range(len(self.target.names))
        return {i: rank(self.probabilities[:, i], self.label[:rows] == i, self.weight[:rows]) for i in classes}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.label)

    def worst(self, limit: int) -> np.ndarray:
        """The places of the usable rows with the highest loss, highest first."""
        finite = np.flatnonzero(self.usable)
        if len(finite) > limit:
            finite = finite[np.argpartition(-self.loss[finite], limit)[:limit]]
        order: np.ndarray = finite[np.argsort(-self.loss[finite], kind="stable")]
        return order

    def write(self, path: str, sources: pa.Array, offsets: pa.Array) -> None:
        """Writes the table as an Arrow file.

        Args:
          path: the file.
          sources: the file that each row comes from, `[rows]`.
          offsets: where it begins in the file, int64 `[rows]`; null: of images.
        """
        columns: dict[str, Any] = {"file": sources, "offset": offsets, "label": self.label, "weight": self.weight}
        columns |= {"predicted": self.predicted, "score": self.score, "loss": self.loss}
        if self.target.names:
            for name in ("label", "predicted"):
                ids = pa.array(columns[name].astype(np.int32))
                columns[name] = pa.DictionaryArray.from_arrays(ids, pa.array(self.target.names, pa.string()))
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        storage.write_bytes(path, sink.getvalue().to_pybytes())


def _nothing(target: PredictionTarget) -> dict[str, np.ndarray]:
    """A batch without rows."""
    ids = np.zeros(0, np.int64)
    probabilities = np.zeros((0, len(target.names)), np.float32)
    return {"labels": ids, CLASS_ID: ids, PROBABILITIES: probabilities, VALUE: np.zeros(0)}


class Collector:
    """Gathers the predictions of an evaluation batch by batch.

    Args:
      target: what is predicted.
      probability_bytes: the memory for the probabilities of all classes; those of the first rows are kept.
    """

    def __init__(self, target: PredictionTarget, *, probability_bytes: int = PROBABILITY_BYTES) -> None:
        self.target = target
        self._parts: list[Predictions] = []
        self._left = probability_bytes if len(target.names) <= MOST_CLASSES else 0

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds a batch as `Predictions.of_batch` takes it."""
        part = Predictions.of_batch(self.target, batch)
        if part.probabilities is not None:
            stored = part.probabilities if self._left > 0 else part.probabilities[:0]
            part = dataclasses.replace(part, probabilities=stored)
            self._left -= stored.nbytes
        self._parts.append(part)

    @property
    def predictions(self) -> Predictions:
        """All rows so far."""
        whole = Predictions.joined(self.target, self._parts)
        self._parts = [whole]
        return whole
