"""Predicts raw rows with an exported model, batch by batch: decodes them like the job, and formats lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.concurrency import prefetch
from schemas.exports.model import ServedModel
from schemas.exports.notes import Notes
from schemas.exports.rows import PredictedRows, RowBatch, RowPredictor, ignored_note, read_batches, with_raw_bytes
from schemas.exports.unknown import KnownValues
from schemas.formats import check_not_empty, row_format
from schemas.predictions.encoding import encode_csv, encode_json_lines, header
from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.table import Schema
from trainer.predicting.options import SIGNATURES, Outcome, PredictOptions

BATCH_SIZE = 4096
LATE_AT_ONCE = 10_000  # rejects whose raw bytes are read together: a stream is read from its beginning each time


def open_rows(
    options: PredictOptions, paths: Sequence[str], schema: Schema, notes: Notes
) -> Callable[[ServedModel], Iterator[Outcome]]:
    """Opens files of rows for prediction, and checks all of them against the schema.

    Returns:
      A function that reads the rows and predicts them with a model.

    Raises:
      UsageError: the header of a file does not match the schema, or there are no records.
    """
    form, ratio = row_format(schema), options.max_input_ratio
    files = [form.open_file(path, schema, label="optional", max_input_ratio=ratio) for path in paths]
    check_not_empty(files)
    storage.print_notes([f"note: {note}" for note in ignored_note(files)])
    batch_size = options.batch_size or BATCH_SIZE

    def outcomes(model: ServedModel) -> Iterator[Outcome]:
        known = KnownValues(options.export, schema)
        predict = RowPredictor(model, schema, notes.classes, signature=SIGNATURES[options.signature], known=known)
        late: list[Reject] = []
        late_file: RowFile | None = None
        begun = False  # whether the file has its header

        def read_again() -> Iterator[Outcome]:
            if late and late_file is not None:
                yield Outcome(0, 0, "", with_raw_bytes(late, [late_file], schema))
                late.clear()

        for rows, predicted in prefetch(_predicted(prefetch(read_batches(files, schema, batch_size)), predict)):
            if rows.file is not late_file or len(late) >= LATE_AT_ONCE:
                yield from read_again()
            late_file = rows.file
            late += [reject for _, reject in predicted.refused]
            found = predicted.found
            text, answered = b"", 0
            if found is not None:
                text, answered = _encoded(found, notes.classes, as_csv=options.as_csv), found.num_rows
                if options.as_csv and not begun:
                    text, begun = header(found.schema, notes.classes) + text, True
            yield Outcome(rows.read, answered, text.decode(), rows.rejects, done=rows.done, unknown=predicted.unknown)
        yield from read_again()

    return outcomes


def _encoded(batch: pa.RecordBatch, classes: Sequence[str], *, as_csv: bool) -> bytes:
    return b"".join(map(bytes, [encode_csv(batch)] if as_csv else encode_json_lines(batch, classes)))


def _predicted(batches: Iterator[RowBatch], predict: RowPredictor) -> Iterator[tuple[RowBatch, PredictedRows]]:
    for rows in batches:
        places = np.zeros(rows.batch.num_rows, np.int64)
        if rows.batch.num_rows:
            yield rows, predict(rows.batch, [rows.file], places, rows.numbers)
        else:
            yield rows, PredictedRows(None, places, [])
