"""Answered requests as a server hands them over, and the rows of the table that they become."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.store.database import StoredRow
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Feature, Label
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import CsvOptions, Schema, served_features, serving_columns

ID, MODEL = "_id", "_model"
_IMAGE_KINDS = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"))
Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ServedBatch:
    """Rows that one model answered together.

    Attributes:
      ids: one a row: the request's id, followed by `/0`, `/1`, ... where the request has several rows.
      ids_given: one a row: whether the client gave the id, and so may send it again.
      columns: the raw values by the export's input names, float32 `[rows]` or `[rows, width]`, or objects of `bytes`
        `[rows]`, as in the signature `serving_default`. A key that a request does not send is b"". Of a row that could
        not be read they are NaN and b"".
      outputs: the model's outputs by name, `[rows, ...]`, as in `trainer.export.outputs`. Where `error` is not b"", the
        row has no prediction.
      version: the name of the export that answered.
      received: one a row: when its request arrived, seconds since 1970.
      answered: when the model had answered, seconds since 1970.
      sent: the rows that could not be read, as JSON, by row.
    """

    ids: Sequence[str]
    ids_given: Sequence[bool]
    columns: Mapping[str, np.ndarray]
    outputs: Outputs
    version: str
    received: Sequence[float]
    answered: float
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The raw columns of the stored requests of a schema.

    Attributes:
      inputs: the columns that a request sends.
      names: the names of the cells of a stored line.
      csv: delimiter and quote.
      missing: the tokens of missing values, by input.
      images: whether the inputs are image files, whose names are stored.
    """

    inputs: tuple[RawColumn, ...]
    names: tuple[str, ...]
    csv: CsvOptions
    missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    images: bool = False

    @property
    def form(self) -> str:
        """What must be equal of two schemas, as JSON, so that one reads the lines of the other."""
        return json.dumps([self.names, self.csv.delimiter, self.csv.quote, self.missing], sort_keys=True)

    def lines(self, values: Mapping[str, Any]) -> list[bytes]:
        """The raw values of each row as a line of CSV, which `schemas.csv` reads back to the same values.

        Args:
          values: by input; of images the names of their files.
        """
        cells = [
            text.string_cells(values[column.name], self.csv)
            if column.dtype == "string"
            else text.number_cells(values[column.name], self.missing[column.name], delimiter=self.csv.delimiter)
            for column in self.inputs
        ]
        data, starts = text.lines(cells, self.csv)
        return [data[begin:end] for begin, end in itertools.pairwise(starts.tolist())]

    def cells(self, lines: Sequence[bytes]) -> dict[str, pa.BinaryArray]:
        """The cells of some lines, binary `[rows]` by column."""
        return dict(zip(self.names, text.columns(b"".join(lines), self.csv, len(self.names)), strict=True))


def layout_of(schema: AnySchema) -> Layout:
    """How the requests of a schema are stored.

    Raises:
      UsageError: the schema reads a column named `_id`, which is the id of a request.
    """
    if isinstance(schema, ImageSchema):
        inputs = tuple(RawColumn(name, "string") for name in schema.image_names)
        return Layout(inputs, schema.image_names, CsvOptions(header="present"), images=True)
    names = tuple(name for feature in served_features(schema) for name in column_names(feature, schema))
    if ID in names:
        raise UsageError(f"{schema.name}: reads a column {ID!r}, the name that stored requests have for their ids")
    return Layout(serving_columns(schema), names, schema.csv, schema.missing_tokens)


def column_names(item: Feature | Label, schema: Schema) -> list[str]:
    """The names of a feature's or label's columns: as in the schema; the feature's where columns have no names."""
    header = schema.csv.columns
    unnamed = [item.name] if item.width == 1 else [f"{item.name}.{ref}" for ref in item.refs]
    names = zip(item.refs, unnamed, strict=True)
    return [ref if isinstance(ref, str) else name if header is None else header[ref] for ref, name in names]


def image_names(columns: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
    """The name of each image file, by input: a digest of its bytes; empty where there is no image."""
    return {name: [_image_name(data) if data else b"" for data in files] for name, files in columns.items()}


def _image_name(data: bytes) -> bytes:
    suffix = next((suffix for magic, suffix in _IMAGE_KINDS if data.startswith(magic)), ".bin")
    return f"{hashlib.sha256(data).hexdigest()[:32]}{suffix}".encode()


def table_rows(batch: ServedBatch, lines: Sequence[bytes]) -> list[StoredRow]:
    """The rows of the table `requests` that a batch becomes; `lines` has the raw values of each row."""
    outputs = batch.outputs
    nothing: Sequence[bytes] = [b""] * len(batch.ids)
    prediction, probabilities = nothing, nothing
    if "class" in outputs:
        prediction = outputs["class"].tolist()
    elif "value" in outputs:
        prediction = text.number_cells(outputs["value"].astype(np.float32), ("nan",)).to_pylist()
    if "probabilities" in outputs:
        numbers = outputs["probabilities"].astype(np.float32)
        probabilities = text.number_cells(numbers, ("nan",), delimiter=" ").to_pylist()
    errors = outputs["error"].tolist() if "error" in outputs else nothing
    return [
        StoredRow(
            batch.ids[row],
            batch.ids_given[row],
            b"" if row in batch.sent else lines[row],  # a row that could not be read has no raw values
            batch.sent.get(row),
            prediction[row],
            probabilities[row],
            errors[row],
            batch.version,
            batch.received[row],
            batch.answered,
        )
        for row in range(len(batch.ids))
    ]


def put_stored_answer(outputs: Outputs, row: int, stored: StoredRow, classes: Sequence[str]) -> None:
    """Puts a stored answer in place of a row of `outputs`, whose arrays are changed. Outputs not stored are withheld.

    Args:
      outputs: the outputs of a batch.
      row: the row.
      stored: the stored request.
      classes: the names of the classes, by id.
    """
    put_error(outputs, row, stored.error)
    if stored.error:
        return
    if "value" in outputs:
        outputs["value"][row] = float(stored.prediction)
    if "class" in outputs:
        outputs["class"][row] = stored.prediction
    if "class_id" in outputs and stored.prediction.decode() in classes:
        outputs["class_id"][row] = classes.index(stored.prediction.decode())
    if "probabilities" in outputs:
        probabilities = np.array(stored.probabilities.split(), np.float64)
        if len(probabilities) == outputs["probabilities"].shape[1]:
            outputs["probabilities"][row] = probabilities


def put_error(outputs: Outputs, row: int, error: bytes) -> None:
    """Puts an error in place of a row of `outputs`, whose arrays are changed."""
    for name, values in outputs.items():
        if name == "error":
            values[row] = error
        elif name != "key":
            values[row] = {"f": np.nan, "i": -1, "O": b""}.get(values.dtype.kind, 0)
