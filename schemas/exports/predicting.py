"""Predicts on rows, images and pairs of images with an export, in batches; what the model refuses becomes rejects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import MillraceError
from schemas.exports.model import ERROR, OUTPUTS, RAW, WITHOUT_KEY, ServedModel, failures_as
from schemas.exports.words import KnownValues
from schemas.formats import row_format
from schemas.images.reading import CheckedFile, ReadItem, reject_of, undecodable
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
                    piece = batch.slice(start, size)
                    so_far = begun + (done - begun) * (start + piece.num_rows) / batch.num_rows
                    yield RowBatch(file, piece, numbers[start : start + size], [], piece.num_rows, so_far)
            before += part.covers


def ignored_note(files: Iterable[RowFile]) -> list[str]:
    """Returns the note that columns of files are ignored, if there are any."""
    names = list(dict.fromkeys(name for file in files for name in file.ignored))
    return [note_of_undeclared(names)] if names else []


class PredictedRows(NamedTuple):
    """The predictions of a batch of rows.

    Attributes:
      predictions: their columns, see `schemas.predictions.encoding.predictions`; None where no row has one.
      places: int `[predictions]`, of each, its file's place among the batch's files.
      refused: of each other row, its file's place, and a reject without raw bytes.
      unknown: by feature, how many of the predicted rows have a value that the model does not know.
    """

    predictions: pa.RecordBatch | None
    places: np.ndarray
    refused: list[tuple[int, Reject]]
    unknown: Mapping[str, int] = MappingProxyType({})


class RowPredictor:
    """Predicts batches of rows with an export. Threads share it. Keys need not go through the model.

    Args:
      model: the export.
      schema: its schema.
      classes: their names by id; none for a regression.
      pass_through: columns of the files, whose cells predictions carry.
      known_values: the values that the model knows, to count others; None: they are not counted.
    """

    def __init__(
        self,
        model: ServedModel,
        schema: Schema,
        classes: Sequence[str],
        *,
        pass_through: Sequence[str] = (),
        known_values: KnownValues | None = None,
    ) -> None:
        self._model, self._schema, self._classes = model, schema, classes
        self._pass_through, self._known_values = pass_through, known_values
        self._hints = hints_of(schema)
        self._signature = WITHOUT_KEY if WITHOUT_KEY in model.signatures else RAW
        takes = model.signatures[self._signature].inputs
        self._columns = [column for column in serving_columns(schema) if column.name in takes]

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
        inputs = {column.name: dense(batch.column(column.name), column) for column in self._columns}
        with failures_as("the model failed"):
            outputs = self._model.predict(inputs, signature=self._signature, outputs=OUTPUTS)
        offsets = np.asarray(batch.column(OFFSET))
        good = np.ones(batch.num_rows, bool)
        refused: list[tuple[int, Reject]] = []

        def refuse(row: int, stage: str, reason: str, column: str, detail: str) -> None:
            good[row] = False
            place = int(places[row])
            refused.append((place, Reject(files[place].path, int(offsets[row]), stage, reason, column, detail, b"")))

        errors = outputs[ERROR]
        for row in np.flatnonzero(errors != b"").tolist():
            refuse(row, "transform", *self._parts_of(errors[row].decode(), files[int(places[row])]))
        passed = {}
        for index, name in enumerate(self._pass_through):
            passed[name], bad = _as_text(batch.column(cell_field(index).name))
            for row in bad[good[bad]].tolist():
                refuse(row, "pass_through", "not_utf8", name, "is passed through, and is not UTF-8")
        keys = batch.column(self._schema.key.name).flatten().cast(pa.string()) if self._schema.key else None
        unknown: Mapping[str, int] = {}
        if self._known_values is not None:
            words = {c.name: batch.column(c.name).flatten() for c in self._columns if c.dtype == "string"}
            unknown = self._known_values.count(words, good)
        if not good.all():
            keep = np.flatnonzero(good)
            offsets, places, numbers = offsets[keep], places[keep], None if numbers is None else numbers[keep]
            outputs = {name: values[keep] for name, values in outputs.items()}
            passed = {name: values.take(pa.array(keep)) for name, values in passed.items()}
            keys = None if keys is None else keys.take(pa.array(keep))
        if not len(offsets):
            return PredictedRows(None, places, refused)
        names = pa.array([source_name(file.path) for file in files], pa.string())
        output_batch = predictions(
            sources=pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), names),
            offsets=offsets,
            numbers=numbers,
            keys=keys,
            passed=passed,
            outputs=outputs,
            classes=self._classes,
        )
        return PredictedRows(output_batch, places, refused, unknown)

    def _parts_of(self, error: str, file: RowFile) -> tuple[str, str, str]:
        """Splits an `error`, which is `<input>: <reason>`, into the reason, the column and the detail."""
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


@dataclasses.dataclass(frozen=True)
class PredictedImages:
    """The items of a batch that have predictions, with the model's outputs `[answered, ...]`; and the others' rejects.

    `rejects` are by the item's place in the batch, rising.
    """

    answered: list[ReadItem]
    outputs: Mapping[str, np.ndarray]
    rejects: Mapping[int, Reject]


def predict_images(batch: Sequence[ReadItem], model: ServedModel) -> PredictedImages:
    """Predicts a batch of items, some of which may be rejected already.

    Args:
      batch: the items.
      model: an export of their schema.

    Raises:
      MillraceError: the model failed.
    """
    import tensorflow as tf

    rejects = {place: read.reject for place, read in enumerate(batch) if read.reject is not None}
    sent = [place for place in range(len(batch)) if place not in rejects]
    if not sent:
        return PredictedImages([], {}, rejects)
    try:
        inputs = {name: [batch[place].files[name].data for place in sent] for name in batch[sent[0]].files}
        outputs = model.predict(inputs, outputs=OUTPUTS)
    except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter: a message that contains bytes of a file
        raise MillraceError(f"the model failed: {getattr(error, 'message', error)}") from error
    errors = outputs[ERROR]
    rejects |= {place: _refused(batch[place], e.decode()) for place, e in zip(sent, errors, strict=True) if e}
    good = np.flatnonzero(errors == b"")
    answered = [batch[sent[row]] for row in good.tolist()]
    return PredictedImages(
        answered, {name: values[good] for name, values in outputs.items()}, dict(sorted(rejects.items()))
    )


def _refused(read: ReadItem, error: str) -> Reject:
    """Makes the reject of an item with an `error`, `<input>: <reason>`; the decoder's own message says more."""
    name = error.partition(": ")[0]
    file = read.files[name]
    return reject_of(read.item, name, file.read.refusal(undecodable(file.header, file.data, _decoder_error(file))))


def _decoder_error(file: CheckedFile) -> Exception:
    """Returns the error of TensorFlow's decoder for a file that the model rejects without a message."""
    import tensorflow as tf

    try:
        if file.header.format == "jpeg":
            tf.io.decode_jpeg(file.data, channels=3, dct_method="INTEGER_ACCURATE")
        else:
            tf.io.decode_png(file.data, channels=3)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        return error
    return ValueError("the model does not accept it")
