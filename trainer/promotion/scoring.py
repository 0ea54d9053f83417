"""Scores two exports on the same raw rows, batch by batch; exports of another transform or another order of classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas import interrupts
from schemas.concurrency import prefetch
from schemas.errors import UsageError
from schemas.exports.model import ServedModel
from schemas.spec.forms import RawColumn
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema, serving_columns
from trainer.promotion.eval_images import EvalImages
from trainer.promotion.eval_rows import EvalRows, RawBatch
from trainer.promotion.metrics import Answers
from trainer.promotion.slices import Slice, slices_of
from trainer.report.collect import EPSILON

OUTPUTS = ("class_id", "probabilities", "value", "error")


@dataclasses.dataclass(frozen=True)
class Export:
    """An export to be scored: its path, schema, class names by id, and the model."""

    path: str
    schema: AnySchema
    classes: tuple[str, ...]
    model: ServedModel


@dataclasses.dataclass(frozen=True)
class Scored:
    """What exports predict on the same rows.

    Attributes:
      answers: of each export, of all rows.
      answered: of each export, bool `[rows]`: whether it gives the row a prediction.
      slices: the parts that the rows are divided into.
      classes: the names of the class ids of all answers; empty of numbers.
    """

    answers: tuple[Answers, ...]
    answered: tuple[np.ndarray, ...]
    slices: tuple[Slice, ...]
    classes: tuple[str, ...]


def inputs_of(schema: AnySchema) -> tuple[RawColumn, ...]:
    """What an export of a schema takes."""
    if isinstance(schema, Schema):
        return serving_columns(schema)
    return tuple(RawColumn(name, "string") for name in schema.image_names)


def check_inputs(export: Export, rows: AnySchema) -> None:
    """Raises UsageError where an export takes a column that these rows do not have, or of another form."""
    given = {column.name: column for column in inputs_of(rows)}
    for column in inputs_of(export.schema):
        found = given.get(column.name)
        if found is None or (found.dtype, found.width) != (column.dtype, column.width):
            what = "no such column" if found is None else f"{found.dtype} of width {found.width}"
            raise UsageError(
                f"{export.path}: takes {column.name!r} ({column.dtype}, width {column.width}), and the dataset has "
                f"{what}: the two exports cannot be scored on the same rows. Compare them by hand, and promote with "
                "--force"
            )


def score(exports: Sequence[Export], rows: EvalRows | EvalImages, slices: Sequence[str] = ()) -> Scored:
    """Runs all exports on all rows.

    Raises:
      UsageError: an export takes other columns than the rows have.
    """
    for export in exports:
        check_inputs(export, rows.dataset.declared)
    classes = tuple(dict.fromkeys(name for export in exports for name in export.classes))
    judges: list[_Judge] = [_Classes(export, classes) if classes else _values for export in exports]
    parts: list[list[tuple[Answers, np.ndarray]]] = [[] for _ in exports]
    sliced: dict[str, list[np.ndarray]] = {name: [] for name in slices}
    for batch, outputs in prefetch(_predicted(exports, prefetch(rows.batches()))):
        interrupts.check()
        for place, answer in enumerate(outputs):
            errors = answer.get("error")
            answered = np.ones(len(batch.labels), bool) if errors is None else errors == b""
            parts[place].append((judges[place](batch, answer), answered))
        for name, held in sliced.items():
            held.append(batch.columns[name])
    held_by = {name: np.concatenate(held) for name, held in sliced.items() if held}
    found = (part for name, values in held_by.items() for part in slices_of(rows.dataset.schema, name, values))
    return Scored(
        tuple(_joined([answers for answers, _ in part]) for part in parts),
        tuple(np.concatenate([flags for _, flags in part]) if part else np.zeros(0, bool) for part in parts),
        tuple(found),
        classes,
    )


def _predicted(
    exports: Sequence[Export], batches: Iterator[RawBatch]
) -> Iterator[tuple[RawBatch, list[Mapping[str, Any]]]]:
    columns = [[column.name for column in inputs_of(export.schema)] for export in exports]
    for batch in batches:
        yield (
            batch,
            [
                export.model.predict({name: batch.columns[name] for name in names}, outputs=OUTPUTS)
                for export, names in zip(exports, columns, strict=True)
            ],
        )


_Judge = Callable[[RawBatch, Mapping[str, Any]], Answers]


class _Classes:
    """Answers of a model of classes, with ids among the classes of all exports: each numbers its own."""

    def __init__(self, export: Export, classes: Sequence[str]) -> None:
        self._names = {name.encode(): i for i, name in enumerate(classes)}
        self._own = np.array([classes.index(name) for name in export.classes])
        self._all = len(classes) + 1  # the last one: a label that none of them knows

    def __call__(self, batch: RawBatch, outputs: Mapping[str, Any]) -> Answers:
        rows = len(batch.labels)
        label = np.fromiter((self._names.get(name, self._all - 1) for name in batch.labels), np.int64, rows)
        given = outputs["class_id"].reshape(-1).astype(np.int64)
        predicted = np.where(given >= 0, self._own[given], self._all - 1)
        probabilities = np.zeros((rows, self._all), np.float64)
        probabilities[:, self._own] = np.nan_to_num(outputs["probabilities"])
        own = probabilities[np.arange(rows), label]
        chosen = probabilities[:, 1] if self._all == 3 else probabilities[np.arange(rows), predicted]
        loss = -np.log(np.clip(own, EPSILON, 1.0))
        return Answers(label, _weights(batch), predicted, chosen, loss)


def _values(batch: RawBatch, outputs: Mapping[str, Any]) -> Answers:
    """Answers of a model of numbers."""
    label = batch.labels.astype(np.float64)
    value = outputs["value"].reshape(-1).astype(np.float64)
    return Answers(label, _weights(batch), value, value, (value - label) ** 2)


def _weights(batch: RawBatch) -> np.ndarray:
    return np.ones(len(batch.labels)) if batch.weights is None else batch.weights


def _joined(parts: Sequence[Answers]) -> Answers:
    names = [field.name for field in dataclasses.fields(Answers)]
    return Answers(*(np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)]) for name in names))
