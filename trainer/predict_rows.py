"""Raw CSV rows through an exported model, a batch at a time: the job's own decoder, the exported graph, JSON lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.csv_file import CsvFile, open_csv, split_ranges
from schemas.csv_read import Decoded, read_range
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
            yield Outcome(rows.read, rows.batch.num_rows, _lines(rows, outputs, notes), rows.rejects)

    return outcomes


@dataclasses.dataclass(frozen=True)
class _Rows:
    """A batch of one file's rows that can be predicted, and the rejects that stand before and among them."""

    source: str
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
            yield _Rows(file.path, batch.slice(0, 0), numbers[:0], decoded.rejects, decoded.read - batch.num_rows)
            for start in range(0, batch.num_rows, batch_size):
                part = batch.slice(start, batch_size)
                yield _Rows(file.path, part, numbers[start : start + batch_size], [], part.num_rows)


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


def _lines(rows: _Rows, outputs: Mapping[str, Any], notes: Notes) -> str:
    if not outputs:
        return ""
    offsets = np.asarray(rows.batch.column(OFFSET))
    return encode_lines(outputs, source=rows.source, offsets=offsets, rows=rows.numbers, classes=notes.classes)
