"""Predictions as JSON lines and as CSV, with the same columns in every format.

In CSV each class's probability is a column. Arrow writes the values of a batch and joins them to lines; Python joins no
row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SOURCE, OFFSET, ROW, KEY = "source", "offset", "row", "key"
CLASS, PROBABILITIES, VALUE = "class", "probabilities", "value"
PROBABILITY = "probability_"  # before a class, the name of a column of its probabilities
INPUT = "input."  # before the name of an input's column that is passed through


def source_name(path: str) -> str:
    """Returns a file's path as text: bytes of its name that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def predictions(
    *,
    sources: pa.DictionaryArray,
    offsets: np.ndarray,
    keys: pa.StringArray | None,
    passed: Mapping[str, pa.StringArray],
    outputs: Mapping[str, np.ndarray],
    classes: Sequence[str],
    numbers: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Makes the columns of predictions: each row's place, its key, cells that are passed through, the model's outputs.

    Args:
      sources: the file of each row.
      offsets: int64, where each row begins in it.
      keys: the rows' keys; None: they have none.
      passed: further columns of the input, by name.
      outputs: `class_id` int64 `[rows]` and `probabilities` float32 `[rows, classes]`, or `value` float32 `[rows]`.
      classes: the names of the classes by id; none for a regression.
      numbers: int64, each row's index among the records of its file; None: they do not say it.
    """
    columns: dict[str, pa.Array] = {SOURCE: sources, OFFSET: pa.array(offsets, pa.int64())}
    if numbers is not None:
        columns[ROW] = pa.array(numbers, pa.int64())
    if keys is not None:
        columns[KEY] = keys
    columns |= {f"{INPUT}{name}": values for name, values in passed.items()}
    return pa.RecordBatch.from_pydict(columns | output_columns(outputs, classes))


def output_columns(outputs: Mapping[str, np.ndarray], classes: Sequence[str]) -> dict[str, pa.Array]:
    """Makes columns of a model's outputs: class and probabilities, or, without classes, value; see `predictions`."""
    if not classes:
        return {VALUE: pa.array(np.asarray(outputs["value"], np.float32))}
    ids = pa.array(outputs["class_id"].astype(np.int32))
    flat = pa.array(np.ascontiguousarray(outputs["probabilities"], np.float32).reshape(-1))
    return {
        CLASS: pa.DictionaryArray.from_arrays(ids, pa.array(classes, pa.string())),
        PROBABILITIES: pa.FixedSizeListArray.from_arrays(flat, len(classes)),
    }


def probabilities(batch: pa.RecordBatch) -> np.ndarray:
    """Returns the probabilities, float32 `[rows, classes]`."""
    column = batch.column(PROBABILITIES)
    return np.asarray(column.flatten()).reshape(len(column), -1)


Piece: TypeAlias = str | pa.StringArray  # the same text in each row, or each row's own
Strings: TypeAlias = Callable[[pa.StringArray], pa.StringArray]  # how a format writes text


def _cells(column: pa.Array, strings: Strings, *, not_finite: str) -> pa.StringArray:
    """Writes the text of a column, `[rows]`; each word of a dictionary once."""
    if pa.types.is_dictionary(column.type):
        return strings(column.dictionary).take(column.indices)
    if pa.types.is_string(column.type):
        return strings(column)
    if pa.types.is_floating(column.type):
        return _floats(np.asarray(column), not_finite)
    return column.cast(pa.string())


def _floats(values: np.ndarray, not_finite: str) -> pa.StringArray:
    """Floats `[rows]`, each in as few digits as it needs to be restored; `not_finite` for NaN and infinity."""
    text = pa.array(values).cast(pa.string())
    finite = np.isfinite(values)
    return text if finite.all() else pc.if_else(pa.array(finite), text, _scalar(not_finite))


_QUOTE = '"'
_SPECIAL = '",\r\n'
_TO_QUOTE = f"[{_SPECIAL}]"


def header(schema: pa.Schema, classes: Sequence[str]) -> bytes:
    """Writes the names of the columns, as the first line of a file."""
    names: list[str] = []
    for name in schema.names:
        names += [f"{PROBABILITY}{label}" for label in classes] if name == PROBABILITIES else [name]
    return f"{','.join(map(_quoted, names))}\n".encode()


def encode_csv(batch: pa.RecordBatch) -> pa.Buffer:
    """Writes the rows as lines. NaN and infinity are empty."""
    cells: list[pa.StringArray] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == PROBABILITIES:
            cells += [_floats(values, "") for values in np.ascontiguousarray(probabilities(batch).T)]
        else:
            cells.append(_cells(column, _csv_strings, not_finite=""))
    pieces = [piece for cell in cells for piece in (cell, ",")]
    return _lines([*pieces[:-1], "\n"])


def _csv_strings(values: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring_regex(values, _TO_QUOTE)).as_py():
        return values
    return pa.array([_quoted(value) for value in values.to_pylist()], pa.string())


def _quoted(value: str) -> str:
    """Quotes a cell if it needs that; Python's writer leaves out a carriage return alone."""
    return f'"{value.replace(_QUOTE, 2 * _QUOTE)}"' if any(sign in value for sign in _SPECIAL) else value


_TO_ESCAPE = r'["\\\x00-\x1f]'
_MANY = 64  # columns; a join of more of them takes longer than a join of all their values


def _json_strings(values: pa.StringArray) -> pa.StringArray:
    """Strings as JSON has them, `[rows]`."""
    special = pc.match_substring_regex(values, _TO_ESCAPE)
    if pc.any(special).as_py():
        return pa.array([encode_basestring(value) for value in values.to_pylist()], pa.string())
    return pc.binary_join_element_wise(_scalar('"'), values, _scalar('"'), _scalar(""))


def _objects(values: np.ndarray, names: Sequence[str]) -> list[Piece]:
    """Floats `[rows, names]` as an object for each row, such as `{"a": 0.25, "b": 0.75}`."""
    labels = [f"{', ' if place else '{'}{encode_basestring(name)}: " for place, name in enumerate(names)]
    if len(names) > _MANY:
        return [_joined_rows(values, labels), "}"]
    pieces: list[Piece] = []
    for label, column in zip(labels, np.ascontiguousarray(values.T), strict=True):
        pieces += [label, _floats(column, "null")]
    return [*pieces, "}"]


def _joined_rows(values: np.ndarray, labels: Sequence[str]) -> pa.StringArray:
    """Each row's labels and values: one join of all values, whose text is then cut into rows."""
    rows, width = values.shape
    places = np.tile(np.arange(width, dtype=np.int32), rows)
    before = pa.array(labels, pa.string()).take(pa.array(places))
    _, offsets, data = pc.binary_join_element_wise(before, _floats(values.reshape(-1), "null"), _scalar("")).buffers()
    starts = np.frombuffer(offsets, np.int32, rows * width + 1)[::width]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(np.ascontiguousarray(starts)), data)


def _lines(pieces: Sequence[Piece]) -> pa.Buffer:
    """Joins the text of all rows, for each row its pieces one after the other.

    Args:
      pieces: at least one is a column; texts that follow one another are joined first.
    """
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    arguments = [_scalar(piece) if isinstance(piece, str) else piece for piece in merged]
    return _text_of(pc.binary_join_element_wise(*arguments, _scalar("")))


def _text_of(rows: pa.StringArray) -> pa.Buffer:
    """Joins the bytes of strings."""
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, np.int32, len(rows) + 1, 4 * rows.offset)
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.string())


_AT_ONCE = 1 << 19  # probabilities, whose text is in memory at once


def encode_json_lines(batch: pa.RecordBatch, classes: Sequence[str]) -> list[pa.Buffer]:
    """Writes one JSON object a row. NaN and infinity, which JSON does not know, are null.

    What is passed through is an object `input`, by the columns' names.
    """
    rows = max(1, _AT_ONCE // max(1, len(classes)))
    return [_encode(batch.slice(start, rows), classes) for start in range(0, batch.num_rows, rows)]


def _encode(batch: pa.RecordBatch, classes: Sequence[str]) -> pa.Buffer:
    passed = [name for name in batch.schema.names if name.startswith(INPUT)]
    pieces: list[Piece] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces.append(", " if pieces else "{")
        if name in passed:
            opening = '"input": {' if name == passed[0] else ""
            closing = "}" if name == passed[-1] else ""
            label = encode_basestring(name.removeprefix(INPUT))
            pieces += [f"{opening}{label}: ", _json_strings(column), closing]
            continue
        pieces.append(f'"{name}": ')
        if name == PROBABILITIES:
            pieces += _objects(probabilities(batch), classes)
        else:
            pieces.append(_cells(column, _json_strings, not_finite="null"))
    return _lines([*pieces, "}\n"])
