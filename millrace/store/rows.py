"""Answered requests as a server hands them over, and the rows of the table that they become."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Feature, Label
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import CsvOptions, Schema, served_features, serving_columns

ID, MODEL = "_id", "_model"
Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ServedBatch:
    """Rows that one model answered together.

    Attributes:
      ids: one a row: the request's id, followed by `/0`, `/1`, ... where the request has several rows.
      given: one a row: whether the client gave the id, and so may send it again.
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
    given: Sequence[bool]
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
        bounds = starts.tolist()
        return [data[begin:end] for begin, end in itertools.pairwise(bounds)]

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
    header, names = schema.csv.columns, []
    for ref in item.refs:
        if isinstance(ref, str):
            names.append(ref)
        elif header is not None:
            names.append(header[ref])
        else:
            names.append(item.name if item.width == 1 else f"{item.name}.{ref}")
    return names


def table_rows(batch: ServedBatch, lines: Sequence[bytes], layout_number: int) -> list[tuple[Any, ...]]:
    """The rows of the table `requests` that a batch becomes, in the order of its columns.

    Args:
      batch: the answered requests.
      lines: the raw values of each row; see `Layout.lines`.
      layout_number: the number of the layout in the store.
    """
    outputs, rows = batch.outputs, len(batch.ids)
    nothing: Sequence[bytes] = [b""] * rows
    prediction, probabilities = nothing, nothing
    if "class" in outputs:
        prediction = outputs["class"].tolist()
    elif "value" in outputs:
        prediction = text.number_cells(outputs["value"].astype(np.float32), ("nan",)).to_pylist()
    if "probabilities" in outputs:
        probabilities = text.number_cells(
            outputs["probabilities"].astype(np.float32), ("nan",), delimiter=" "
        ).to_pylist()
    errors = outputs["error"].tolist() if "error" in outputs else nothing
    return [
        (
            batch.ids[row],
            batch.given[row],
            layout_number,
            b"" if row in batch.sent else lines[row],  # a row that could not be read has no raw values
            batch.sent.get(row),
            prediction[row],
            probabilities[row],
            errors[row],
            batch.version,
            batch.received[row],
            batch.answered,
        )
        for row in range(rows)
    ]


def put_stored_answer(outputs: Outputs, row: int, stored: Mapping[str, Any], classes: Sequence[str]) -> None:
    """Puts a stored answer in place of a row of `outputs`, whose arrays are changed. Outputs not stored are withheld.

    Args:
      outputs: the outputs of a batch.
      row: the row.
      stored: `prediction`, `probabilities` and `error` of the stored request.
      classes: the names of the classes, by id.
    """
    _withhold(outputs, row, stored["error"])
    if stored["error"]:
        return
    if "value" in outputs:
        outputs["value"][row] = float(stored["prediction"])
    if "class" in outputs:
        outputs["class"][row] = stored["prediction"]
    if "class_id" in outputs and stored["prediction"].decode() in classes:
        outputs["class_id"][row] = classes.index(stored["prediction"].decode())
    if "probabilities" in outputs:
        probabilities = np.array(stored["probabilities"].split(), np.float64)
        if len(probabilities) == outputs["probabilities"].shape[1]:
            outputs["probabilities"][row] = probabilities


def put_taken_id(outputs: Outputs, row: int, name: str) -> None:
    """Puts an error in place of a row of `outputs`, whose arrays are changed: its id has other values."""
    _withhold(outputs, row, f"{ID}: {name[:80]} is the id of another request, with other values".encode())


def _withhold(outputs: Outputs, row: int, error: bytes) -> None:
    for name, values in outputs.items():
        if name == "error":
            values[row] = error
        elif name != "key":
            values[row] = {"f": np.nan, "i": -1, "O": b""}.get(values.dtype.kind, 0)


def names_json(layout: Layout) -> str:
    """The names of a layout's cells, as JSON: requests whose values have the same names can be compared."""
    return json.dumps(layout.names)
