"""Predicts raw rows with an exported model, batch by batch: decodes them like the job, and formats JSON lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.concurrency import prefetch
from schemas.exports.notes import Notes, refused_rows
from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import RowFile, dense
from schemas.spec.table import OFFSET, Schema, serving_columns
from trainer.export.saved_model import ServedModel
from trainer.predicting.lines import FIELDS, encode_lines
from trainer.predicting.options import SIGNATURES, Outcome, PredictOptions

RANGE_BYTES = 8 << 20
BATCH_SIZE = 4096


def open_rows(
    options: PredictOptions, paths: Sequence[str], schema: Schema, notes: Notes
) -> Callable[[ServedModel], Iterator[Outcome]]:
    """Opens files of rows for prediction, and checks all of them against the schema.

    Returns:
      A function that reads the rows and predicts them with a model.

    Raises:
      UsageError: the header of a file does not match the schema.
    """
    form, ratio = row_format(schema), options.max_input_ratio
    files = [form.open_file(path, schema, label="optional", max_input_ratio=ratio) for path in paths]
    batch_size = options.batch_size or BATCH_SIZE

    def outcomes(model: ServedModel) -> Iterator[Outcome]:
        batches = _read_all(files, schema, batch_size)
        run = _runner(model, schema, options.signature)
        late = LateRejects(schema)
        for rows, outputs in prefetch(_predicted(prefetch(batches), run)):
            yield from late.outcomes(before=rows.file)
            yield _outcome(rows, outputs, notes, late)
        yield from late.outcomes()

    return outcomes


@dataclasses.dataclass(frozen=True)
class _Rows:
    """A batch of valid rows of one file, and the rejects before and between them."""

    file: RowFile
    batch: pa.RecordBatch
    numbers: np.ndarray  # int64 [batch]: each row's index among the file's records
    rejects: list[Reject]
    read: int
    done: float  # about the share of the bytes of all files up to here, from 0 to 1


def _read_all(files: Sequence[RowFile], schema: Schema, batch_size: int) -> Iterator[_Rows]:
    total, before = max(1, sum(file.covers for file in files)), 0
    for file in files:
        yield from _read(file, schema, batch_size, before=before, total=total)
        before += file.covers


def _read(file: RowFile, schema: Schema, batch_size: int, *, before: int, total: int) -> Iterator[_Rows]:
    """Batches of one file. `before` and `total`: the bytes of earlier files, and of all."""
    first = 0
    rows = row_format(schema)
    for part in rows.plan_ranges(file, range_bytes=RANGE_BYTES):
        for decoded in rows.read_range(part, schema, with_split=False):
            done = (before + min(decoded.consumed, part.covers)) / total
            numbers = first + decoded.numbers()
            first += decoded.read
            batch = decoded.batch
            yield _Rows(file, batch.slice(0, 0), numbers[:0], decoded.rejects, decoded.read - batch.num_rows, done)
            for start in range(0, batch.num_rows, batch_size):
                some = batch.slice(start, batch_size)
                yield _Rows(file, some, numbers[start : start + batch_size], [], some.num_rows, done)
        before += part.covers


def _predicted(
    batches: Iterator[_Rows], run: Callable[[pa.RecordBatch], Mapping[str, Any]]
) -> Iterator[tuple[_Rows, Mapping[str, Any]]]:
    for rows in batches:
        yield rows, run(rows.batch) if rows.batch.num_rows else {}


def _runner(model: ServedModel, schema: Schema, signature: str) -> Callable[[pa.RecordBatch], Mapping[str, Any]]:
    columns = serving_columns(schema)
    name = SIGNATURES[signature]

    def by_name(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return model.predict({c.name: dense(batch.column(c.name), c) for c in columns}, signature=name, outputs=FIELDS)

    def by_examples(batch: pa.RecordBatch) -> Mapping[str, Any]:
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        examples = RecordBatchToExamples(batch.select([c.name for c in columns]))
        return model.predict({"examples": examples}, signature=name, outputs=FIELDS)

    return by_name if signature == "predict" else by_examples


class LateRejects:
    """Rejects of rows that the reader accepts and the model rejects. Reads their raw bytes again, for many at once."""

    AT_ONCE = 10_000  # many, since a stream is read from its beginning each time

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._file: RowFile | None = None
        self._rejects: list[Reject] = []

    def add(self, file: RowFile, offsets: np.ndarray, errors: Sequence[bytes]) -> None:
        """Adds rows of one file: their offsets, and the model's `error` for each."""
        self._file = file
        self._rejects += refused_rows(file, self._schema, offsets, errors)

    def outcomes(self, *, before: RowFile | None = None) -> Iterator[Outcome]:
        """Yields the rejects with their raw bytes if there are many, or if rows of another file or no rows follow."""
        if self._file is None or (self._file is before and len(self._rejects) < self.AT_ONCE):
            return
        offsets = [reject.offset for reject in self._rejects]
        raws = row_format(self._schema).read_records(self._file, self._schema, offsets)
        yield Outcome(0, 0, "", [dataclasses.replace(r, raw=raws[r.offset]) for r in self._rejects])
        self._file, self._rejects = None, []


def _outcome(rows: _Rows, outputs: Mapping[str, Any], notes: Notes, late: LateRejects) -> Outcome:
    """Formats lines for the rows with predictions; adds the others to the late rejects."""
    if not outputs:
        return Outcome(rows.read, 0, "", rows.rejects, done=rows.done)
    offsets, numbers = np.asarray(rows.batch.column(OFFSET)), rows.numbers
    errors = outputs.get("error")  # exports of earlier releases have none
    if errors is not None and errors.any():
        refused, answered = np.flatnonzero(errors != b""), np.flatnonzero(errors == b"")
        late.add(rows.file, offsets[refused], errors[refused])
        outputs = {name: values[answered] for name, values in outputs.items()}
        offsets, numbers = offsets[answered], numbers[answered]
    lines = encode_lines(outputs, source=rows.file.path, offsets=offsets, rows=numbers, classes=notes.classes)
    return Outcome(rows.read, len(offsets), lines, rows.rejects, done=rows.done)
