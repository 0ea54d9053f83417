"""Files of rows, or images, through an exported model, batch by batch: decoded like the job, and formatted as lines.

Of images, the size of each file and the dimensions in its header are checked first. An image that the graph rejects is
a reject, too, and does not affect the other images of its batch.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.concurrency import map_in_order, prefetch
from schemas.exports.model import ServedModel
from schemas.exports.notes import ExportNotes
from schemas.exports.predicting import (
    PredictedRows,
    RowBatch,
    RowPredictor,
    ignored_note,
    predict_images,
    read_batches,
    with_raw_bytes,
)
from schemas.exports.words import KnownValues
from schemas.formats import check_not_empty, row_format
from schemas.images.listing import ImageItem, list_items, plain
from schemas.images.reading import BATCH_SIZE as IMAGES
from schemas.images.reading import READERS, batches, read_item
from schemas.predictions.encoding import SOURCE, encode_csv, encode_json_lines, header, output_columns
from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.images import ImageSchema
from schemas.spec.table import Schema
from trainer.predicting.options import PredictedPart, PredictOptions

ROWS = 4096  # in a batch, by default
LATE_AT_ONCE = 10_000  # rejects whose raw bytes are read together: a stream is read from its beginning each time


def open_rows(
    options: PredictOptions, paths: Sequence[str], schema: Schema, notes: ExportNotes
) -> Callable[[ServedModel], Iterator[PredictedPart]]:
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
    batch_size = options.batch_size or ROWS

    def outcomes(model: ServedModel) -> Iterator[PredictedPart]:
        known_values = KnownValues(options.export, schema)
        predict = RowPredictor(model, schema, notes.classes, known_values=known_values)
        late: list[Reject] = []
        late_file: RowFile | None = None
        begun = False  # whether the file has its header

        def read_again() -> Iterator[PredictedPart]:
            if late and late_file is not None:
                yield PredictedPart(0, 0, "", with_raw_bytes(late, [late_file], schema))
                late.clear()

        for rows, predicted in prefetch(_predicted(prefetch(read_batches(files, schema, batch_size)), predict)):
            if rows.file is not late_file or len(late) >= LATE_AT_ONCE:
                yield from read_again()
            late_file = rows.file
            late += [reject for _, reject in predicted.refused]
            predictions = predicted.predictions
            text, answered = b"", 0
            if predictions is not None:
                text, answered = _encoded(predictions, notes.classes, as_csv=options.as_csv), predictions.num_rows
                if options.as_csv and not begun:
                    text, begun = header(predictions.schema, notes.classes) + text, True
            yield PredictedPart(
                rows.read, answered, text.decode(), rows.rejects, done=rows.done, unknown=predicted.unknown
            )
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


TOP = 5


def open_images(
    options: PredictOptions, paths: Sequence[str], schema: ImageSchema, notes: ExportNotes
) -> Callable[[ServedModel], Iterator[PredictedPart]]:
    """Opens images, or CSV files of pairs of images, for prediction.

    Returns:
      A function that reads the images and predicts them with a model.

    Raises:
      UsageError: a CSV file of pairs cannot be read, or the root is not a folder.
    """
    listed = list_items(schema, paths, options.root)
    batch_size = options.batch_size or IMAGES

    def outcomes(model: ServedModel) -> Iterator[PredictedPart]:
        read = functools.partial(read_item, images=schema.images)
        with ThreadPoolExecutor(READERS) as pool:
            everything = map_in_order(pool, read, listed.items, max_pending=2 * READERS)
            done, first = 0, True
            for batch in prefetch(batches(everything, batch_size)):
                predicted = predict_images(batch, model)
                items = [read.item for read in predicted.answered]
                lines = encode_lines(items, predicted.outputs, notes.classes)
                written = "".join(line.json for line in lines)
                if options.as_csv and items:
                    table = _columns(items, predicted.outputs, notes.classes)
                    names = header(table.schema, notes.classes) if first else b""
                    written, first = (names + bytes(encode_csv(table))).decode(), False
                answered = iter(lines)
                texts = [
                    f"{read.item.shown}: rejected, {reject.reason} ({reject.detail})\n"
                    if (reject := predicted.rejects.get(place))
                    else next(answered).text
                    for place, read in enumerate(batch)
                ]
                done += len(batch)
                yield PredictedPart(
                    read=len(batch),
                    predicted=len(lines),
                    lines=written,
                    rejects=list(predicted.rejects.values()),
                    shown="".join(texts),
                    done=done / listed.count,
                )

    return outcomes


def _columns(items: Sequence[ImageItem], outputs: Mapping[str, Any], classes: Sequence[str]) -> pa.RecordBatch:
    """Predictions as columns; of pairs with the line that names both images."""
    columns: dict[str, pa.Array] = {SOURCE: pa.array([plain(item.source) for item in items])}
    if items[0].names:
        columns["line"] = pa.array([item.place for item in items])
        names = zip(*(map(plain, item.names) for item in items), strict=True)
        columns |= {image: pa.array(column) for image, column in zip(items[0].files, names, strict=True)}
    return pa.RecordBatch.from_pydict(columns | output_columns(outputs, classes))


@dataclasses.dataclass(frozen=True)
class ImageLine:
    """One prediction as a JSON line, and as text."""

    json: str
    text: str


def encode_lines(items: Sequence[ImageItem], outputs: Mapping[str, Any], classes: Sequence[str]) -> list[ImageLine]:
    """Formats one line per item: its source, its class, and up to five most probable classes in order.

    Args:
      items: `[batch]`.
      outputs: `class_id` int64 `[batch]`, `probabilities` float32 `[batch, classes]`; NaN becomes null. Without items,
        they may be left out.
      classes: class names by id.
    """
    if not items:
        return []
    probabilities = outputs["probabilities"]
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
    lines = []
    for item, class_id, ids, row in zip(items, outputs["class_id"], order, probabilities, strict=True):
        top = {classes[i]: float(f"{row[i]:.9g}") if np.isfinite(row[i]) else None for i in ids.tolist()}
        entry: dict[str, Any] = {"source": plain(item.source)}
        if item.names:
            entry |= {"line": item.place, **dict(zip(item.files, map(plain, item.names), strict=True))}
        entry |= {"class": classes[int(class_id)], "top_5": top}
        text = ", ".join(f"{name} {'?' if value is None else f'{value:.4f}'}" for name, value in top.items())
        lines.append(ImageLine(f"{json.dumps(entry, ensure_ascii=False)}\n", f"{item.shown}: {text}\n"))
    return lines
