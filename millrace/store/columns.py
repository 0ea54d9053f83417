"""The columns of a stored request: the raw columns as the schema's files have them, and what was answered."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import hashlib
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
from schemas.storage.json_files import parse_json

ID, PREDICTION, PROBABILITIES, ERROR, MODEL = "_id", "_prediction", "_probabilities", "_error", "_model"
RECEIVED, ANSWERED, SENT, CHECK = "_received", "_answered", "_sent", "_check"
ANSWER = (ID, PREDICTION, PROBABILITIES, ERROR, MODEL, RECEIVED, ANSWERED, SENT, CHECK)
Outputs = Mapping[str, np.ndarray]
MARK = b"\xef\xbb\xbf"  # says that a file is in UTF-8, whatever the schema's encoding


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
class Columns:
    """How requests of one schema are written.

    Attributes:
      inputs: the raw columns that a request sends.
      names: the names of the file's columns: those of the inputs, then `ANSWER`.
      csv: delimiter and quote.
      missing: the tokens of missing values, by input.
      images: whether the inputs are image files, which are stored beside the lines.
    """

    inputs: tuple[RawColumn, ...]
    names: tuple[str, ...]
    csv: CsvOptions
    missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    images: bool = False

    @functools.cached_property
    def key(self) -> bytes:
        """16 bytes that stand for these columns."""
        return hashlib.blake2b(repr(self.names).encode(), digest_size=16).digest()

    @property
    def header(self) -> bytes:
        """The beginning of a file."""
        mark = b"" if self.csv.encoding == "utf-8" else MARK
        return mark + text.header_line(self.names, self.csv)

    def number_cells(self, name: str, values: np.ndarray) -> pa.BinaryArray:
        """The cells of an input of numbers, a missing one as a token of that input."""
        return text.number_cells(values, self.missing[name], delimiter=self.csv.delimiter)


def columns_of(schema: AnySchema) -> Columns:
    """The columns of a schema's requests.

    Raises:
      UsageError: the schema reads a column that has the name of one of `ANSWER`.
    """
    if isinstance(schema, ImageSchema):
        inputs = tuple(RawColumn(name, "string") for name in schema.image_names)
        return Columns(inputs, (*schema.image_names, *ANSWER), CsvOptions(header="present"), images=True)
    names = [name for feature in served_features(schema) for name in column_names(feature, schema)]
    taken = sorted(set(names) & set(ANSWER))
    if taken:
        raise UsageError(f"{schema.name}: reads the column {taken[0]!r}, a name that stored requests use themselves")
    return Columns(serving_columns(schema), (*names, *ANSWER), schema.csv, schema.missing_tokens)


def column_names(feature: Feature | Label, schema: Schema) -> list[str]:
    """What a feature's columns are called: as in the schema; a position without a name gets the feature's."""
    known, names = schema.csv.columns, []
    for ref in feature.refs:
        if isinstance(ref, str):
            names.append(ref)
        elif known is not None:
            names.append(known[ref])
        else:
            names.append(feature.name if feature.width == 1 else f"{feature.name}.{ref}")
    return names


def inputs_of(names: Sequence[str]) -> list[str]:
    """The raw columns among those of a file."""
    return [name for name in names if name not in ANSWER]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A batch as lines.

    Attributes:
      data: all lines.
      starts: where each begins and the last one ends, `[rows + 1]`.
      digests: 8 bytes a row, of its raw values; empty where they were not asked for.
    """

    data: bytes
    starts: np.ndarray
    digests: Sequence[bytes]

    def line(self, row: int) -> bytes:
        """A row's line."""
        return self.data[self.starts[row] : self.starts[row + 1]]


def encode(columns: Columns, batch: ServedBatch, values: Mapping[str, Any]) -> Encoded:
    """Encodes answered rows. `values` are the raw columns by input; of images, the paths of their files. Of a row that
    could not be read, what has a column stands there as it was sent.
    """
    csv, rows, sent, outputs = columns.csv, len(batch.ids), batch.sent, batch.outputs
    empty = pa.array([b""] * rows, pa.binary())
    cells = [
        text.string_cells(values[c.name], csv) if c.dtype == "string" else columns.number_cells(c.name, values[c.name])
        for c in columns.inputs
    ]
    if sent:
        texts = {row: _texts(columns, data) for row, data in sent.items()}
        for i, column in enumerate(cells):
            found = column.to_pylist()
            for row, each in texts.items():
                found[row] = each[i]
            cells[i] = pa.array(found, pa.binary())
    hashes: list[bytes] = []
    if any(batch.given):
        data, starts = text.lines(cells, csv)
        if columns.images:  # the same file may lie in several folders
            names = [[path.rpartition(b"/")[2] for path in values[c.name]] for c in columns.inputs]
            data, starts = text.lines([text.string_cells(name, csv) for name in names], csv)
        hashes = [digest(columns, sent.get(i) or data[starts[i] : starts[i + 1]]) for i in range(rows)]
    times = np.array([*batch.received, batch.answered]) * 1e6
    stamps = [f"{stamp}Z".encode() for stamp in np.datetime_as_string(times.astype("datetime64[us]"))]
    cells += [
        text.string_cells([each.encode() for each in batch.ids], csv),
        _prediction(outputs, csv, empty),
        _probabilities(outputs, empty),
        text.string_cells(outputs.get("error", empty), csv),
        text.string_cells([batch.version.encode()] * rows, csv),
        pa.array(stamps[:-1], pa.binary()),
        pa.array(stamps[-1:] * rows, pa.binary()),
        text.string_cells([sent.get(i, b"") for i in range(rows)], csv) if sent else empty,
    ]
    return Encoded(*text.lines(cells, csv, checked=True), hashes)


def _texts(columns: Columns, data: bytes) -> list[bytes]:
    """What of a row that could not be read belongs to each input: its cells, quoted and joined."""
    row, csv = parse_json(data), columns.csv
    found = []
    for column in columns.inputs:
        value = row.get(column.name) if isinstance(row, dict) and not columns.images else None
        size = column.width or 1
        values = value if column.width and isinstance(value, list) and len(value) == size else [value]
        absent = b""
        if column.dtype == "float32":
            absent = columns.number_cells(column.name, np.array([np.nan], np.float32))[0].as_py()
        texts = [absent if each is None else _as_text(each) for each in values] + [absent] * (size - len(values))
        found.append(csv.delimiter.encode().join(text.string_cells(texts, csv).to_pylist()))
    return found


def _as_text(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def digest(columns: Columns, values: bytes) -> bytes:
    """Of a row's raw values, as they are written: 8 bytes, other ones for the same cells of other columns."""
    return hashlib.blake2b(values, digest_size=8, key=columns.key).digest()


def digest_of_cells(columns: Columns, cells: Sequence[bytes], sent: bytes) -> bytes:
    """The same of a line's cells, those of the raw values first; `sent`: of a row that could not be read."""
    if sent:
        return digest(columns, sent)
    csv, place, written = columns.csv, 0, []
    quote, delimiter = csv.quote.encode(), csv.delimiter.encode()
    for column in columns.inputs:
        if column.dtype == "string":
            cell = cells[place].rpartition(b"/")[2] if columns.images else cells[place]
            written.append(quote + cell.replace(quote, quote + quote) + quote)
            place += 1
        else:
            written += cells[place : place + (column.width or 1)]
            place += column.width or 1
    return digest(columns, delimiter.join(written) + b"\n")


def _prediction(answer: Outputs, csv: CsvOptions, empty: pa.BinaryArray) -> pa.BinaryArray:
    if "class" in answer:
        return text.string_cells(answer["class"], csv)
    return text.number_cells(answer["value"].astype(np.float32), csv.missing) if "value" in answer else empty


def _probabilities(answer: Outputs, empty: pa.BinaryArray) -> pa.BinaryArray:
    """The probabilities of the classes in the order of their ids, with spaces between; NaN where there are none."""
    if "probabilities" not in answer:
        return empty
    return text.number_cells(answer["probabilities"].astype(np.float32), ("nan",), delimiter=" ")


def stored_answer(cells: Mapping[str, bytes], answer: Outputs, row: int, classes: Sequence[str]) -> None:
    """Puts a stored answer in place of a row of `answer`, whose arrays are changed; other outputs are withheld."""
    _withhold(answer, row, cells[ERROR])
    if cells[ERROR]:
        return
    if "value" in answer:
        answer["value"][row] = float(cells[PREDICTION])
    if "class" in answer:
        answer["class"][row] = cells[PREDICTION]
    if "class_id" in answer and cells[PREDICTION].decode() in classes:
        answer["class_id"][row] = classes.index(cells[PREDICTION].decode())
    if "probabilities" in answer:
        found = np.array(cells[PROBABILITIES].split(), np.float64)
        if len(found) == answer["probabilities"].shape[1]:
            answer["probabilities"][row] = found


def refuse_taken_id(answer: Outputs, row: int, name: str) -> None:
    """Puts an error in place of a row of `answer`, whose arrays are changed."""
    _withhold(answer, row, f"{ID}: {name[:80]} is the id of another request, with other values".encode())


def _withhold(answer: Outputs, row: int, error: bytes) -> None:
    for name, values in answer.items():
        if name == "error":
            values[row] = error
        elif name != "key":
            values[row] = {"f": np.nan, "i": -1, "O": b""}.get(values.dtype.kind, 0)


def seconds_of(stamp: str) -> float:
    """When a request was received, in seconds since 1970."""
    return dt.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
