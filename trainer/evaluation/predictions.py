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
      brier: the Brier score of each row; of numbers, the squared residual.
      among_five: whether the label's class is among the five most probable ones (of equals, the lower ids).
      target: what is predicted.
      probabilities: of more than two classes, those of the first rows, float32 `[first rows, classes]`.
    """

    label: np.ndarray
    weight: np.ndarray
    predicted: np.ndarray
    score: np.ndarray
    loss: np.ndarray
    brier: np.ndarray
    among_five: np.ndarray
    target: PredictionTarget = PredictionTarget()
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
        """Returns the table of probabilities `[rows, classes]`."""
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
        return cls(label, weight, predicted, score, loss, brier, ahead < 5, target, of_all)

    @classmethod
    def of_values(cls, label: np.ndarray, values: np.ndarray, weight: np.ndarray) -> Predictions:
        """Returns the table of predicted numbers `[rows]`."""
        usable = np.isfinite(values) & np.isfinite(weight)
        with np.errstate(invalid="ignore"):
            loss = np.where(usable, (values - label) ** 2, np.nan)
        return cls(label, weight, values, values, loss, loss, np.zeros(len(label), bool))

    @classmethod
    def of_batch(cls, target: PredictionTarget, batch: Mapping[str, np.ndarray]) -> Predictions:
        """Returns the table of a batch: `labels`, predictions by the names of the outputs, and maybe `weights`."""
        labels = batch["labels"].reshape(-1)
        weights = batch.get("weights")
        weight = np.ones(len(labels)) if weights is None else weights.reshape(-1).astype(np.float64)
        if not target.names:
            return cls.of_values(labels.astype(np.float64), batch[VALUE].reshape(-1).astype(np.float64), weight)
        predicted = batch[CLASS_ID].reshape(-1).astype(np.int64)
        return cls.of_classes(target, labels.astype(np.int64), batch[PROBABILITIES], predicted, weight)

    @classmethod
    def joined(cls, target: PredictionTarget, parts: Sequence[Predictions]) -> Predictions:
        """Returns the rows of all parts, one after another."""
        if not parts:
            ids, probabilities = np.zeros(0, np.int64), np.zeros((0, len(target.names)), np.float32)
            parts = [cls.of_batch(target, {"labels": ids, CLASS_ID: ids, PROBABILITIES: probabilities, VALUE: ids})]
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        stored = [part.probabilities for part in parts if part.probabilities is not None]
        return cls(**columns, target=target, probabilities=np.concatenate(stored) if stored else None)

    def take(self, rows: np.ndarray) -> Predictions:
        """Returns these rows, by place or by a mask, without the probabilities of all classes."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return Predictions(**columns, target=self.target)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.label)

    @property
    def usable(self) -> np.ndarray:
        """Whether a row's prediction and weight are numbers, bool `[rows]`."""
        return np.isfinite(self.loss)

    def without_unusable(self) -> Predictions:
        """Returns the usable rows, with the probabilities of all classes of those that have them."""
        usable, probabilities = self.usable, self.probabilities
        if usable.all():
            return self
        if probabilities is not None:
            probabilities = probabilities[usable[: len(probabilities)]]
        return dataclasses.replace(self.take(usable), probabilities=probabilities)

    @functools.cached_property
    def rankings(self) -> Mapping[int, Ranking]:
        """The usable rows by their score of a class: of the positive one of two, or of each with probabilities."""
        if self.target.binary:
            positive = self.target.positive
            return {positive: rank(self.score, self.label == positive, self.weight)}
        if self.probabilities is None or len(self.target.names) > MOST_CLASSES:
            return {}
        label, weight = self.label[: len(self.probabilities)], self.weight[: len(self.probabilities)]
        return {i: rank(column, label == i, weight) for i, column in enumerate(self.probabilities.T)}

    def worst(self, limit: int) -> np.ndarray:
        """Returns the places of the usable rows with the highest loss, highest first."""
        usable = np.flatnonzero(self.usable)
        places: np.ndarray = usable[np.argsort(-self.loss[usable], kind="stable")[:limit]]
        return places

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


_COLUMNS = ("label", "weight", "predicted", "score", "loss", "brier", "among_five")


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
