"""Rows of files, read in batches; and through an export: predictions as columns, and rejects of what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.exports.model import (
    ERROR,
    EXAMPLES,
    EXAMPLES_INPUT,
    KEY,
    OUTPUTS,
    WITHOUT_KEY,
    ServedModel,
    failures_as,
)
from schemas.exports.unknown import KnownValues
from schemas.formats import row_format
from schemas.predictions.encoding import predictions, source_name
from schemas.rejects import Reject
from schemas.rows import RowFile, cell_field, dense
from schemas.spec.naming import note_of_undeclared
from schemas.spec.table import NOT_FINITE, OFFSET, SPLIT, SPLITS, Schema, hints_of, serving_columns

RANGE_BYTES = 8 << 20


class RowBatch(NamedTuple):
    """A batch of rows of one file, and the rejects before and between them.

    Attributes:
      file: the file.
      batch: the rows.
      numbers: each row's index among the file's records, int64 `[batch]`.
      rejects: the rejects; a batch with any has no rows.
      read: how many records these are.
      done: about the share of the bytes of all files up to here, from 0 to 1.
    """

    file: RowFile
    batch: pa.RecordBatch
    numbers: np.ndarray
    rejects: list[Reject]
    read: int
    done: float


def read_batches(
    files: Sequence[RowFile], schema: Schema, size: int, *, split: str | None = None
) -> Iterator[RowBatch]:
    """Reads files of rows in their order.

    Args:
      files: open files.
      schema: says how they are read.
      size: rows in a batch, at most.
      split: leave out the rows that the schema does not put in this split; None: all rows are read.
    """
    form = row_format(schema)
    total, before, done = max(1, sum(file.covers for file in files)), 0, 0.0
    for file in files:
        first = 0
        for part in form.plan_ranges(file, range_bytes=RANGE_BYTES):
            for decoded in form.read_range(part, schema, with_split=split is not None):
                begun, done = done, (before + min(decoded.consumed, part.covers)) / total
                batch, numbers = decoded.batch, first + decoded.numbers()
                first += decoded.read
                if decoded.rejects:
                    rejected = decoded.read - batch.num_rows
                    so_far = begun if batch.num_rows else done
                    yield RowBatch(file, batch.slice(0, 0), numbers[:0], decoded.rejects, rejected, so_far)
                if split is not None:
                    places = np.flatnonzero(np.asarray(batch.column(SPLIT)) == SPLITS.index(split))
                    batch, numbers = batch.take(pa.array(places)), numbers[places]
                for start in range(0, batch.num_rows, size):
                    some = batch.slice(start, size)
                    so_far = begun + (done - begun) * (start + some.num_rows) / batch.num_rows
                    yield RowBatch(file, some, numbers[start : start + size], [], some.num_rows, so_far)
            before += part.covers


def ignored_note(files: Iterable[RowFile]) -> list[str]:
    """The note that columns of files are ignored, if there are any."""
    names = list(dict.fromkeys(name for file in files for name in file.ignored))
    return [note_of_undeclared(names)] if names else []


class PredictedRows(NamedTuple):
    """The predictions of a batch of rows.

    Attributes:
      found: their columns, see `schemas.predictions.encoding.predictions`; None where no row has one.
      places: int `[predictions]`, of each, its file's place among the batch's files.
      refused: of each other row, its file's place, and a reject without raw bytes.
      unknown: by feature, how many of the predicted rows have a value that the model does not know.
    """

    found: pa.RecordBatch | None
    places: np.ndarray
    refused: list[tuple[int, Reject]]
    unknown: Mapping[str, int] = MappingProxyType({})


class RowPredictor:
    """Predicts batches of rows with an export. Threads share it.

    Args:
      model: the export.
      schema: its schema.
      classes: their names by id; none for a regression.
      signature: one of the export's.
      pass_through: columns of the files, whose cells predictions carry.
      known: the values that the model knows, to count others; None: they are not counted.
    """

    def __init__(
        self,
        model: ServedModel,
        schema: Schema,
        classes: Sequence[str],
        *,
        signature: str,
        pass_through: Sequence[str] = (),
        known: KnownValues | None = None,
    ) -> None:
        self._model, self._schema, self._classes, self._signature = model, schema, classes, signature
        self._pass_through, self._known = pass_through, known
        self._hints = hints_of(schema)
        columns, takes = serving_columns(schema), model.signatures[signature].inputs
        self._columns = columns if signature == EXAMPLES else [column for column in columns if column.name in takes]
        self._outputs = {KEY, *OUTPUTS} - ({KEY} if signature == WITHOUT_KEY else set())

    def __call__(
        self, batch: pa.RecordBatch, files: Sequence[RowFile], places: np.ndarray, numbers: np.ndarray | None = None
    ) -> PredictedRows:
        """Predicts a batch.

        Args:
          batch: rows as `schemas.rows` decodes them, with the cells that are passed through.
          files: the files that they are from.
          places: int, of each row, its file's place in `files`.
          numbers: int64, each row's index among the records of its file, where predictions are to say it.

        Raises:
          MillraceError: the model failed.
        """
        inputs = self._inputs(batch)
        with failures_as("the model failed"):
            outputs = self._model.predict(inputs, signature=self._signature, outputs=self._outputs)
        offsets = np.asarray(batch.column(OFFSET))
        good = np.ones(batch.num_rows, bool)
        refused: list[tuple[int, Reject]] = []

        def refuse(row: int, stage: str, reason: str, column: str, detail: str) -> None:
            good[row] = False
            place = int(places[row])
            refused.append((place, Reject(files[place].path, int(offsets[row]), stage, reason, column, detail, b"")))

        errors = outputs.get(ERROR, np.full(0, b"", object))  # exports of the earliest releases have none
        for row in np.flatnonzero(errors != b"").tolist():
            refuse(row, "transform", *self._told(errors[row].decode(), files[int(places[row])]))
        passed = {}
        for index, name in enumerate(self._pass_through):
            passed[name], bad = _as_text(batch.column(cell_field(index).name))
            for row in bad[good[bad]].tolist():
                refuse(row, "pass_through", "not_utf8", name, "is passed through, and is not UTF-8")
        keys = self._keys(batch, outputs)
        unknown: Mapping[str, int] = {}
        if self._known is not None:
            words = {c.name: batch.column(c.name).flatten() for c in self._columns if c.dtype == "string"}
            unknown = self._known.count(words, good)
        if not good.all():
            keep = np.flatnonzero(good)
            offsets, places, numbers = offsets[keep], places[keep], None if numbers is None else numbers[keep]
            outputs = {name: values[keep] for name, values in outputs.items()}
            passed = {name: values.take(pa.array(keep)) for name, values in passed.items()}
            keys = None if keys is None else keys.take(pa.array(keep))
        if not len(offsets):
            return PredictedRows(None, places, refused)
        names = pa.array([source_name(file.path) for file in files], pa.string())
        found = predictions(
            sources=pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), names),
            offsets=offsets,
            numbers=numbers,
            keys=keys,
            passed=passed,
            outputs=outputs,
            classes=self._classes,
        )
        return PredictedRows(found, places, refused, unknown)

    def _inputs(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        if self._signature != EXAMPLES:
            return {column.name: dense(batch.column(column.name), column) for column in self._columns}
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        return {EXAMPLES_INPUT: RecordBatchToExamples(batch.select([column.name for column in self._columns]))}

    def _keys(self, batch: pa.RecordBatch, outputs: Mapping[str, np.ndarray]) -> pa.StringArray | None:
        """The rows' keys, as the model gives them; or as the reader does, which rejects those that are not UTF-8."""
        if KEY in outputs:
            return pa.array([key.decode("utf-8", "replace") for key in outputs[KEY]], pa.string())
        return batch.column(self._schema.key.name).flatten().cast(pa.string()) if self._schema.key else None

    def _told(self, error: str, file: RowFile) -> tuple[str, str, str]:
        """The reason, the column and the detail of an `error`, which is `<input>: <reason>`."""
        name, _, reason = error.partition(": ")
        column = next((labels[0] for feature, labels in file.labels if feature == name and len(labels) == 1), name)
        if reason == NOT_FINITE:
            return reason, column, f"not finite after the transform{self._hints.get(name, '')}"
        return reason, column, "the model rejects this value"


def with_raw_bytes(rejects: Iterable[Reject], files: Iterable[RowFile], schema: Schema) -> list[Reject]:
    """Rejects of the model with their raw bytes, which are read again: all of a file at once."""
    rejects = list(rejects)
    offsets: dict[str, list[int]] = {}
    for reject in rejects:
        offsets.setdefault(reject.source, []).append(reject.offset)
    rows = row_format(schema)
    raws = {f.path: rows.read_records(f, schema, offsets.pop(f.path)) for f in files if f.path in offsets}
    return [dataclasses.replace(reject, raw=raws[reject.source][reject.offset]) for reject in rejects]


def _as_text(cells: pa.BinaryArray) -> tuple[pa.StringArray, np.ndarray]:
    """Cells as text, and the rows of those that are not UTF-8, which are empty."""
    try:
        return cells.cast(pa.string()), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        bad = np.array([not _is_utf8(cell) for cell in cells.to_pylist()])
        return pc.if_else(pa.array(bad), pa.scalar(b""), cells).cast(pa.string()), np.flatnonzero(bad)


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True
