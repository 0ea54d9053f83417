"""One batch of rows through the model: its predictions, encoded, and the rows that are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.predicting.formats import Format
from schemas.exports.notes import refused_rows
from schemas.predictions.encoding import predictions, source_name
from schemas.rejects import Reject
from schemas.rows import RowFile, cell_field, dense
from schemas.spec.table import OFFSET, Schema, serving_columns

Model = Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The predictions of a batch: encoded, with their schema and the place of the first; and the refused rows.

    `rows` counts the predictions by file. `refused` has the place of each row's file among the batch's, and a reject
    without raw bytes.
    """

    encoded: Any
    schema: pa.Schema | None
    rows: np.ndarray
    first: tuple[str, int]
    refused: list[tuple[int, Reject]]


class Answering:
    """Predicts batches of one export's rows. Threads share it."""

    def __init__(
        self, model: Model, schema: Schema, classes: tuple[str, ...], pass_through: tuple[str, ...], form: Format
    ) -> None:
        self._model, self._schema, self._classes, self._form = model, schema, classes, form
        self._columns = serving_columns(schema)
        self._pass_through = pass_through

    def __call__(self, batch: pa.RecordBatch, files: Sequence[RowFile], places: np.ndarray) -> Answer:
        """Predicts a batch.

        Args:
          batch: rows as `schemas.rows` decodes them, with the cells that are passed through.
          files: the files that they are from.
          places: int, of each row, its file's place in `files`.
        """
        outputs = self._model({column.name: dense(batch.column(column.name), column) for column in self._columns})
        offsets = np.asarray(batch.column(OFFSET))
        refused: list[tuple[int, Reject]] = []
        good = np.ones(batch.num_rows, bool)
        errors = outputs["error"]
        for row in np.flatnonzero(errors != b"").tolist():
            good[row] = False
            place = int(places[row])
            refused += [
                (place, r) for r in refused_rows(files[place], self._schema, offsets[row : row + 1], [errors[row]])
            ]
        passed = {}
        for index, name in enumerate(self._pass_through):
            passed[name], bad = _as_text(batch.column(cell_field(index).name))
            for row in bad[good[bad]].tolist():
                good[row] = False
                place = int(places[row])
                detail = "is passed through, and is not UTF-8"
                reject = Reject(files[place].path, int(offsets[row]), "pass_through", "not_utf8", name, detail, b"")
                refused.append((place, reject))
        if not good.all():
            keep = np.flatnonzero(good)
            offsets, places = offsets[keep], places[keep]
            outputs = {name: values[keep] for name, values in outputs.items()}
            passed = {name: values.take(pa.array(keep)) for name, values in passed.items()}
            batch = batch.select([self._schema.key.name]).take(pa.array(keep)) if self._schema.key else batch
        if not len(offsets):
            return Answer(None, None, np.zeros(len(files), np.int64), ("", 0), refused)
        names = pa.array([source_name(file.path) for file in files], pa.string())
        found = predictions(
            sources=pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), names),
            offsets=offsets,
            keys=_text(batch.column(self._schema.key.name).flatten()) if self._schema.key else None,
            passed=passed,
            outputs=outputs,
            classes=self._classes,
        )
        first = (files[int(places[0])].path, int(offsets[0]))
        return Answer(self._form.encode(found), found.schema, np.bincount(places, minlength=len(files)), first, refused)


def _text(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes that are known to be UTF-8: the reader rejects other keys."""
    return values.cast(pa.string())


def _as_text(cells: pa.BinaryArray) -> tuple[pa.StringArray, np.ndarray]:
    """Cells as text, and the rows of those that are not UTF-8, which are empty."""
    try:
        return cells.cast(pa.string()), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        bad = np.flatnonzero([not _is_utf8(cell) for cell in cells.to_pylist()])
        mask = np.zeros(len(cells), bool)
        mask[bad] = True
        return pc.if_else(pa.array(mask), pa.scalar(b""), cells).cast(pa.string()), bad


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True
