"""Raw CSV rows through an exported model, a batch at a time: the job's own decoder, the exported graph, JSON lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.csv_file import CsvFile, open_csv, split_ranges
from schemas.csv_read import Decoded, read_range
from schemas.csv_record import read_records
from schemas.raw import OFFSET, RawColumn, serving_columns
from schemas.rejects import Reject
from schemas.schema import Schema
from trainer.ahead import ahead
from trainer.predict_options import SIGNATURES, Outcome, PredictOptions
from trainer.prediction_lines import FIELDS, encode_lines
from trainer.served import Notes, ServedModel

RANGE_BYTES = 8 << 20
BATCH_SIZE = 4096


def open_rows(
    options: PredictOptions, paths: Sequence[str], schema: Schema, notes: Notes
) -> Callable[[ServedModel], Iterator[Outcome]]:
    """Opens CSV files to be predicted; a file that does not fit the schema is refused before any work.

    Returns:
      A function that reads the rows and predicts on them with a model.

    Raises:
      UsageError: a file whose header does not fit.
    """
    files = [open_csv(path, schema, label="optional", max_input_ratio=options.max_input_ratio) for path in paths]
    batch_size = options.batch_size or BATCH_SIZE

    def outcomes(model: ServedModel) -> Iterator[Outcome]:
        batches = (rows for file in files for rows in _read(file, schema, batch_size))
        run = _runner(model, schema, options.signature)
        for rows, outputs in ahead(_predicted(ahead(batches), run)):
            yield _outcome(rows, outputs, schema, notes)

    return outcomes


@dataclasses.dataclass(frozen=True)
class _Rows:
    """A batch of one file's rows that can be predicted, and the rejects that stand before and among them."""

    file: CsvFile
    batch: pa.RecordBatch
    numbers: np.ndarray  # int64 [batch]: each row's place among the file's records
    rejects: list[Reject]
    read: int


def _read(file: CsvFile, schema: Schema, batch_size: int) -> Iterator[_Rows]:
    first = 0
    for csv_range in split_ranges(file, range_bytes=RANGE_BYTES):
        for decoded in read_range(csv_range, schema):
            numbers = first + _numbers(decoded)
            first += decoded.read
            batch = decoded.batch
            yield _Rows(file, batch.slice(0, 0), numbers[:0], decoded.rejects, decoded.read - batch.num_rows)
            for start in range(0, batch.num_rows, batch_size):
                part = batch.slice(start, batch_size)
                yield _Rows(file, part, numbers[start : start + batch_size], [], part.num_rows)


def _numbers(decoded: Decoded) -> np.ndarray:
    """The places of a batch's rows among its records, the rejected ones counted."""
    offsets = np.asarray(decoded.batch.column(OFFSET))
    rejected = np.sort(np.array([reject.offset for reject in decoded.rejects], np.int64))
    return np.arange(len(offsets)) + np.searchsorted(rejected, offsets)


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


def dense(values: pa.Array, column: RawColumn) -> np.ndarray:
    """A raw column -> `[batch]` or `[batch, width]`: float32, or objects of `bytes`."""
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return flat if column.width is None else flat.reshape(-1, column.width)


def _outcome(rows: _Rows, outputs: Mapping[str, Any], schema: Schema, notes: Notes) -> Outcome:
    """Lines for the rows that the model answers; the others are rejects."""
    if not outputs:
        return Outcome(rows.read, 0, "", rows.rejects)
    offsets, numbers, rejects = np.asarray(rows.batch.column(OFFSET)), rows.numbers, rows.rejects
    errors = outputs.get("error")  # exports of earlier releases have none
    if errors is not None and errors.any():
        rejects = rejects + _refused(rows.file, schema, offsets, errors)
        answered = np.flatnonzero(errors == b"")
        outputs = {name: values[answered] for name, values in outputs.items()}
        offsets, numbers = offsets[answered], numbers[answered]
    lines = encode_lines(outputs, source=rows.file.path, offsets=offsets, rows=numbers, classes=notes.classes)
    return Outcome(rows.read, len(offsets), lines, rejects)


def _refused(file: CsvFile, schema: Schema, offsets: np.ndarray, errors: np.ndarray) -> list[Reject]:
    """Rows that the reader takes and the model does not answer: the transform makes something of them that is none."""
    bad = np.flatnonzero(errors != b"")
    raws = read_records(file, schema, offsets[bad].tolist())
    columns = {item.name: item.labels[0] for item in file.columns.items if len(item.labels) == 1}
    rejects = []
    for offset, error in zip(offsets[bad].tolist(), errors[bad], strict=True):
        name, _, reason = error.decode().partition(": ")
        detail = "the transform makes a value of it that is not finite"
        rejects.append(Reject(file.path, offset, "transform", reason, columns.get(name, name), detail, raws[offset]))
    return rejects
