"""Turns values of Python, pandas, NumPy or JSON into arrays for a model, as the job reads the cells of a file."""

from __future__ import annotations

import dataclasses
import itertools
import math
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.csv.values import missing_tokens, numbers
from schemas.spec.forms import RawColumn
from schemas.spec.words import word_of

_NUMBERS, _TEXTS = frozenset({int, float, type(None)}), frozenset({str, type(None)})  # the usual types of values
_WORDS = (str, bytes, bool, np.bool_)  # what stands in a cell as text
_ABSENT = frozenset({"NoneType", "NAType", "NaTType"})  # None, and what pandas has for it


_SHOWN = 60  # characters of a value in an error


@dataclasses.dataclass(frozen=True)
class Problem:
    """Why a value cannot be sent to a model.

    Attributes:
      text: what was found, and what was expected.
      reason: the job's reason for such a cell; None: no cell of a file could hold the value.
    """

    text: str
    reason: str | None = None


def takes(column: RawColumn) -> str:
    """Says what an input takes, for an error."""
    if column.dtype == "string":
        return "a string, or bytes (null where it is missing)"
    if column.width is None:
        return "a number (null where it is missing)"
    return f"a list of {column.width} numbers (null where one is missing)"


def described(value: Any) -> str:
    """Describes a value in an error: its type, and a short value itself."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"the string {value[:_SHOWN]!r}{'...' if len(value) > _SHOWN else ''}"
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value):,}"
        case int() if abs(value) > 10**300:
            return "an integer of too many digits"
        case int() | float():
            return f"the number {value}"
    return f"{type(value).__name__} {reprlib.repr(value)}"


def column_array(
    values: Sequence[Any], column: RawColumn, tokens: tuple[str, ...]
) -> tuple[np.ndarray, dict[int, Problem]]:
    """Makes the array of one input.

    Args:
      values: one a row: numbers, text, truth values, bytes, or what stands for a missing value; lists for vectors.
      column: the input.
      tokens: those of a missing value.

    Returns:
      float32 `[rows]` or `[rows, width]`, or objects of bytes `[rows]`; and what is wrong, by row. NaN is missing, and
      stands for what is wrong, as b"" does. Infinite where a number is out of range.
    """
    if column.dtype == "string":
        return _texts(values, column)
    if column.width is None:
        return _numbers(values, column, tokens)
    problems: dict[int, Problem] = {}
    rows, flat = [], []
    for row, vector in enumerate(values):
        parts = vector if type(vector) is list else _parts(vector)
        if parts is None:
            problems[row] = _unfit(vector, column)
        elif len(parts) != column.width:
            reason = f"wrong_number_of_values ({len(parts)}, expected {column.width})"
            problems[row] = Problem(reason, reason)
        else:
            rows.append(row)
            flat.append(parts)
    read, wrong = _numbers(list(itertools.chain.from_iterable(flat)), column, tokens)
    array = np.full((len(values), column.width), np.nan, np.float32)
    array[rows] = read.reshape(len(rows), column.width)
    for i, problem in wrong.items():
        problems.setdefault(rows[i // column.width], problem)
    return array, problems


def _texts(values: Sequence[Any], column: RawColumn) -> tuple[np.ndarray, dict[int, Problem]]:
    if _TEXTS.issuperset(map(type, values)):
        try:
            return _objects([b"" if value is None else value.encode() for value in values]), {}
        except UnicodeEncodeError:
            pass  # one by one, to say which
    read = [_text(value, column) for value in values]
    problems = {row: text for row, text in enumerate(read) if isinstance(text, Problem)}
    return _objects([b"" if isinstance(text, Problem) else text for text in read]), problems


def _objects(texts: list[bytes]) -> np.ndarray:
    return np.array(texts or np.empty(0), object)


def _text(value: Any, column: RawColumn) -> bytes | Problem:
    """Returns the bytes of a cell that holds the value."""
    if isinstance(value, bytes):
        return value
    if _absent(value):
        return b""
    if not isinstance(value, str) and isinstance(value, Collection):
        return _unfit(value, column)
    try:
        return (value if isinstance(value, str) else word_of(value)).encode()
    except UnicodeEncodeError:
        return Problem("holds half of a surrogate pair, which is no character")


def _numbers(
    values: Sequence[Any], column: RawColumn, tokens: tuple[str, ...]
) -> tuple[np.ndarray, dict[int, Problem]]:
    """float32 `[n]`; text is read as the CSV reader reads it, to which True is no number."""
    kinds = set(map(type, values))
    if kinds <= _NUMBERS or all(kind in _NUMBERS or issubclass(kind, np.integer | np.floating) for kind in kinds):
        plain = (math.nan if value is None else value for value in values) if type(None) in kinds else values
        try:
            with np.errstate(over="ignore"):
                return np.fromiter(plain, np.float32, len(values)), {}
        except OverflowError:
            pass  # one by one, to say which
    array = np.full(len(values), np.nan, np.float32)
    texts: dict[int, bytes] = {}
    problems: dict[int, Problem] = {}
    with np.errstate(over="ignore"):
        for i, value in enumerate(values):
            if isinstance(value, _WORDS):
                text = _text(value, column)
                if isinstance(text, Problem):
                    problems[i] = text
                else:
                    texts[i] = text
            elif isinstance(value, Collection):
                problems[i] = _unfit(value, column)
            elif not _absent(value):
                try:
                    array[i] = float(value)
                except (TypeError, ValueError, OverflowError):
                    problems[i] = _unfit(value, column)
    if texts:
        places = list(texts)
        cells = pa.array(texts.values(), pa.binary())
        array[places], wrong = numbers(cells, missing_tokens(tokens), if_absent=None)
        for i, error in wrong.items():
            problems[places[i]] = Problem(f"{error.reason} ({error.detail})", error.reason)
    return array, problems


def _unfit(value: Any, column: RawColumn) -> Problem:
    return Problem(f"found {described(value)}; takes {takes(column)}")


def _parts(vector: Any) -> list[Any] | None:
    """Returns the values of a vector; None if it is not a list."""
    if _absent(vector) or isinstance(vector, str | bytes):
        return []
    return list(vector) if isinstance(vector, Iterable) and not isinstance(vector, Mapping) else None


def _absent(value: Any) -> bool:
    return type(value).__name__ in _ABSENT or (isinstance(value, float) and math.isnan(value))
