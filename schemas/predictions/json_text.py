"""JSON lines from columns: Arrow writes the values of a batch and joins them, and Python joins no row."""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TO_ESCAPE = r'["\\\x00-\x1f]'
_NULL = pa.scalar("null")
_MANY = 64  # columns; a join of more of them takes longer than a join of all their values

Piece: TypeAlias = str | pa.StringArray  # the same text in each row, or each row's own


def quoted(text: str) -> str:
    """A string as JSON has it; only what must be is escaped."""
    return encode_basestring(text)


def strings(values: pa.StringArray) -> pa.StringArray:
    """Strings as JSON has them, `[rows]`."""
    special = pc.match_substring_regex(values, _TO_ESCAPE)
    if pc.any(special).as_py():
        return pa.array([encode_basestring(value) for value in values.to_pylist()], pa.string())
    return pc.binary_join_element_wise(_scalar('"'), values, _scalar('"'), _scalar(""))


def named(values: pa.DictionaryArray) -> pa.StringArray:
    """The same of few distinct strings, each of which is written once."""
    words = pa.array([encode_basestring(value) for value in values.dictionary.to_pylist()], pa.string())
    return words.take(values.indices)


def integers(values: np.ndarray) -> pa.StringArray:
    """Integers, `[rows]`."""
    return pa.array(values).cast(pa.string())


def floats(values: np.ndarray) -> pa.StringArray:
    """Floats `[rows]`, each in as few digits as it needs to be restored; null for NaN and infinity."""
    text = pa.array(values).cast(pa.string())
    finite = np.isfinite(values)
    return text if finite.all() else pc.if_else(pa.array(finite), text, _NULL)


def objects(values: np.ndarray, names: Sequence[str]) -> list[Piece]:
    """Floats `[rows, names]` as an object for each row, such as `{"a": 0.25, "b": 0.75}`."""
    labels = [f"{', ' if place else '{'}{quoted(name)}: " for place, name in enumerate(names)]
    if len(names) > _MANY:
        return [_joined_rows(values, labels), "}"]
    pieces: list[Piece] = []
    for label, column in zip(labels, np.ascontiguousarray(values.T), strict=True):
        pieces += [label, floats(column)]
    return [*pieces, "}"]


def _joined_rows(values: np.ndarray, labels: Sequence[str]) -> pa.StringArray:
    """Each row's labels and values: one join of all values, whose text is then cut into rows."""
    rows, width = values.shape
    places = np.tile(np.arange(width, dtype=np.int32), rows)
    before = pa.array(labels, pa.string()).take(pa.array(places))
    _, offsets, data = pc.binary_join_element_wise(before, floats(values.reshape(-1)), _scalar("")).buffers()
    starts = np.frombuffer(offsets, np.int32, rows * width + 1)[::width]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(np.ascontiguousarray(starts)), data)


def lines(pieces: Sequence[Piece]) -> pa.Buffer:
    """The text of all rows, of each its pieces one after the other.

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
    return text_of(pc.binary_join_element_wise(*arguments, _scalar("")))


def text_of(rows: pa.StringArray) -> pa.Buffer:
    """The bytes of strings, one after the other."""
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, np.int32, len(rows) + 1, 4 * rows.offset)
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.string())
