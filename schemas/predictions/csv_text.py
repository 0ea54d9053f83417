"""CSV from the columns of predictions: one column for each class's probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.predictions.columns import PROBABILITIES, VALUE, probabilities
from schemas.predictions.json_text import integers, lines

_QUOTE = '"'
_SPECIAL = '",\r\n'
_TO_QUOTE = f"[{_SPECIAL}]"
_EMPTY = pa.scalar("")


def header(schema: pa.Schema, classes: Sequence[str]) -> bytes:
    """The names of the columns, as the first line of a file."""
    names: list[str] = []
    for name in schema.names:
        names += [f"probability.{label}" for label in classes] if name == PROBABILITIES else [name]
    return f"{','.join(map(_quoted, names))}\n".encode()


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
    return pa.array([_quoted(value) for value in values.to_pylist()], pa.string())


def _quoted(value: str) -> str:
    """A cell, in quotes if it needs them; Python's writer leaves out those of a carriage return alone."""
    return f'"{value.replace(_QUOTE, 2 * _QUOTE)}"' if any(sign in value for sign in _SPECIAL) else value
