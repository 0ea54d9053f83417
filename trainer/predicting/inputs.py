"""Files of rows, or images, through an exported model, batch by batch: decoded like the job, and formatted as lines.

Of images, the size of each file and the dimensions in its header are checked first. An image that the graph rejects is
a reject, too, and does not affect the other images of its batch.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
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
READ_AGAIN = 10_000  # rejects whose raw bytes are read together: a stream is read from its beginning each time
TOP = 5  # classes of an image that are listed


def open_inputs(
    options: PredictOptions, paths: Sequence[str], schema: Schema | ImageSchema, notes: ExportNotes
) -> RowInputs | ImageInputs:
    """Opens files of rows, images, or CSV files of pairs of images, and checks them against the schema.

    Raises:
      UsageError: a file does not match the schema or cannot be read, or there are no records.
    """
    if isinstance(schema, ImageSchema):
        return ImageInputs(options, paths, schema, notes)
    storage.check_names(paths)
    return RowInputs(options, paths, schema, notes)


class CsvLines:
    """Formats predictions as CSV; the first lines begin with the header."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = classes
        self._begun = False

    def encode(self, table: pa.RecordBatch) -> bytes:
        """Returns the lines of a table of predictions."""
        names = b"" if self._begun else header(table.schema, self._classes)
        self._begun = True
        return names + bytes(encode_csv(table))


class RowInputs:
    """Files of rows that were opened for prediction."""

    def __init__(self, options: PredictOptions, paths: Sequence[str], schema: Schema, notes: ExportNotes) -> None:
        self._options, self._schema, self._classes = options, schema, notes.classes
        form, ratio = row_format(schema), options.max_input_ratio
        self._files = [form.open_file(path, schema, label="optional", max_input_ratio=ratio) for path in paths]
        check_not_empty(self._files)
        storage.print_notes([f"note: {note}" for note in ignored_note(self._files)])

    def parts(self, model: ServedModel) -> Iterator[PredictedPart]:
        """Yields the predictions of a model on each batch of rows."""
        known_values = KnownValues(self._options.export, self._schema)
        predict = RowPredictor(model, self._schema, self._classes, known_values=known_values)
        rows = prefetch(read_batches(self._files, self._schema, self._options.batch_size or ROWS))
        csv_lines = CsvLines(self._classes)
        for file, of_file in itertools.groupby(prefetch(_predicted(rows, predict)), key=lambda pair: pair[0].file):
            refused: list[Reject] = []  # by the model, which does not have their raw bytes
            for batch, predicted in of_file:
                if len(refused) >= READ_AGAIN:
                    yield self._read_again(refused, file)
                    refused = []
                refused += [reject for _, reject in predicted.refused]
                yield self._part(batch, predicted, csv_lines)
            if refused:
                yield self._read_again(refused, file)

    def _read_again(self, refused: Sequence[Reject], file: RowFile) -> PredictedPart:
        return PredictedPart(0, 0, "", with_raw_bytes(refused, [file], self._schema))

    def _part(self, batch: RowBatch, predicted: PredictedRows, csv_lines: CsvLines) -> PredictedPart:
        table, lines, count = predicted.predictions, b"", 0
        if table is not None:
            count = table.num_rows
            as_json = not self._options.as_csv
            lines = (
                b"".join(map(bytes, encode_json_lines(table, self._classes))) if as_json else csv_lines.encode(table)
            )
        return PredictedPart(
            batch.read, count, lines.decode(), batch.rejects, done=batch.done, unknown=predicted.unknown
        )


def _predicted(batches: Iterator[RowBatch], predict: RowPredictor) -> Iterator[tuple[RowBatch, PredictedRows]]:
    for rows in batches:
        places = np.zeros(rows.batch.num_rows, np.int64)
        if rows.batch.num_rows:
            yield rows, predict(rows.batch, [rows.file], places, rows.numbers)
        else:
            yield rows, PredictedRows(None, places, [])


class ImageInputs:
    """Images, or pairs of images, that were listed for prediction."""

    def __init__(self, options: PredictOptions, paths: Sequence[str], schema: ImageSchema, notes: ExportNotes) -> None:
        self._options, self._schema, self._classes = options, schema, notes.classes
        self._listed = list_items(schema, paths, options.root)

    def parts(self, model: ServedModel) -> Iterator[PredictedPart]:
        """Yields the predictions of a model on each batch of images."""
        csv_lines, done = CsvLines(self._classes), 0
        with ThreadPoolExecutor(READERS) as pool:
            read = functools.partial(read_item, images=self._schema.images)
            images = map_in_order(pool, read, self._listed.items, max_pending=2 * READERS)
            for batch in prefetch(batches(images, self._options.batch_size or IMAGES)):
                predicted = predict_images(batch, model)
                items = [image.item for image in predicted.answered]
                entries = json_entries(items, predicted.outputs, self._classes)
                if self._options.as_csv:
                    lines = (
                        csv_lines.encode(_columns(items, predicted.outputs, self._classes)).decode() if items else ""
                    )
                else:
                    lines = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
                texts = (_text(image.item, entry) for image, entry in zip(predicted.answered, entries, strict=True))
                shown = (
                    f"{image.item.shown}: rejected, {reject.reason} ({reject.detail})\n"
                    if (reject := predicted.rejects.get(place))
                    else next(texts)
                    for place, image in enumerate(batch)
                )
                done += len(batch)
                rejects, share = list(predicted.rejects.values()), done / self._listed.count
                yield PredictedPart(len(batch), len(items), lines, rejects, shown="".join(shown), done=share)


def _columns(items: Sequence[ImageItem], outputs: Mapping[str, Any], classes: Sequence[str]) -> pa.RecordBatch:
    """Predictions as columns; of pairs with the line that names both images."""
    columns: dict[str, pa.Array] = {SOURCE: pa.array([plain(item.source) for item in items])}
    if items[0].names:
        columns["line"] = pa.array([item.place for item in items])
        names = zip(*(map(plain, item.names) for item in items), strict=True)
        columns |= {image: pa.array(column) for image, column in zip(items[0].files, names, strict=True)}
    return pa.RecordBatch.from_pydict(columns | output_columns(outputs, classes))


def json_entries(
    items: Sequence[ImageItem], outputs: Mapping[str, Any], classes: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns a JSON object for each item: its source, its class, and up to five most probable classes in order.

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
    entries = []
    for item, class_id, ids, row in zip(items, outputs["class_id"], order, probabilities, strict=True):
        top = {classes[i]: float(f"{row[i]:.9g}") if np.isfinite(row[i]) else None for i in ids.tolist()}
        entry: dict[str, Any] = {"source": plain(item.source)}
        if item.names:
            entry |= {"line": item.place, **dict(zip(item.files, map(plain, item.names), strict=True))}
        entries.append(entry | {"class": classes[int(class_id)], "top_5": top})
    return entries


def _text(item: ImageItem, entry: Mapping[str, Any]) -> str:
    """An image's prediction for people."""
    top = (f"{name} {'?' if value is None else f'{value:.4f}'}" for name, value in entry["top_5"].items())
    return f"{item.shown}: {', '.join(top)}\n"
