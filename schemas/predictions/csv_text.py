"""CSV from the columns of predictions: one column for each class's probability."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.predictions.columns import PROBABILITIES, VALUE, probabilities
from schemas.predictions.json_text import integers, lines

_TO_QUOTE = r'[",\r\n]'
_EMPTY = pa.scalar("")


def header(schema: pa.Schema, classes: Sequence[str]) -> bytes:
    """The names of the columns, as the first line of a file."""
    names: list[str] = []
    for name in schema.names:
        names += [f"probability.{label}" for label in classes] if name == PROBABILITIES else [name]
    return _line(names)


def encode(batch: pa.RecordBatch) -> pa.Buffer:
    """The rows as lines. NaN and infinity are empty."""
    cells: list[pa.StringArray] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == PROBABILITIES:
            cells += [_floats(values) for values in np.ascontiguousarray(probabilities(batch).T)]
        elif field.name == VALUE:
            cells.append(_floats(np.asarray(column)))
        elif pa.types.is_dictionary(field.type):
            cells.append(_strings(column.dictionary).take(column.indices))
        else:
            cells.append(_strings(column) if pa.types.is_string(field.type) else integers(np.asarray(column)))
    pieces = [piece for cell in cells for piece in (cell, ",")]
    return lines([*pieces[:-1], "\n"])


def _floats(values: np.ndarray) -> pa.StringArray:
    text = pa.array(values).cast(pa.string())
    finite = np.isfinite(values)
    return text if finite.all() else pc.if_else(pa.array(finite), text, _EMPTY)


def _strings(values: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring_regex(values, _TO_QUOTE)).as_py():
        return values
    return pa.array([_line([value])[:-1].decode() for value in values.to_pylist()], pa.string())


def _line(fields: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()
