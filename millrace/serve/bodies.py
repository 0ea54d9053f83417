"""Plain rows: a list of objects with values as they stand in a raw file. A bad row gets an error of its own.

A number may be text, which is read as the preprocessing job reads it; null is missing; the key may be left out. What
else the schema declares, such as the label, may be there and is not read.

The body of a request as a JSON value: strict, bounded in depth, no key twice, and NaN where it is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millrace.serve.interface import Input, Interface, Refused, bad_request
from millrace.serve.requests import Rows, array_of, described, takes
from schemas.csv.numbers import MissingTokens, missing_tokens, numbers

_UNUSUAL = (b"NaN", b"Infinity")  # not JSON, and taken where TensorFlow Serving takes them
_COLON, _ESCAPED = ":", b"\\u003"  # which is, with a digit more, a colon, too


def parse(body: bytes, *, not_finite: bool) -> Any:
    """The value that a body holds.

    Args:
      body: UTF-8.
      not_finite: whether NaN, Infinity and -Infinity are numbers.

    Raises:
      Refused: it is not JSON, or an object has a key twice, of which one would be lost.
    """
    import orjson

    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not_finite and any(word in body for word in _UNUSUAL):
            return _carefully(body)
        raise bad_request(f"the body is not JSON: {error}") from None
    # Each key in the text is followed by a colon. Where there are no more colons than keys in the value, none is lost.
    colons = body.count(b":")
    if colons != _keys_of_rows(value) and (_ESCAPED in body or colons != _colons(value)):
        _carefully(body)
    return value


def _keys_of_rows(value: Any) -> int:
    """The keys of a list of objects, and of an object that has some; quick, and of other values too few."""
    if type(value) is dict:
        return len(value) + sum(_keys_of_rows(held) for held in value.values() if type(held) is list)
    if type(value) is list and value and type(value[0]) is dict:
        return sum(len(row) for row in value if type(row) is dict)
    return 0


def _colons(value: Any) -> int:
    """The colons that the text of a value has if every key is there once."""
    if type(value) is dict:
        return len(value) + sum(key.count(_COLON) + _colons(held) for key, held in value.items())
    if type(value) is list:
        return sum(_colons(held) for held in value if type(held) in (dict, list, str))
    return value.count(_COLON) if type(value) is str else 0


def _carefully(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_object)
    except RecursionError:
        raise bad_request("the body is not JSON that is read here: it is nested too deeply") from None
    except Refused:
        raise
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise bad_request(f"an object has the key {twice[:60]!r} twice")
    return found


def plain_rows(body: Any, interface: Interface) -> Rows:
    """The rows of a body: a list of objects, or an object whose "rows" are one.

    Raises:
      Refused: it is neither.
    """
    rows = body.get("rows") if type(body) is dict else body
    if type(rows) is not list or not rows:
        raise bad_request(f"found {described(rows)}; expected a list of rows, at least one, each an object")
    errors = {i: problem for i, row in enumerate(rows) if (problem := _names_problem(row, interface))}
    good = [i for i in range(len(rows)) if i not in errors]
    columns: dict[str, list[Any]] = {}
    for column in interface.columns:
        values = [rows[i].get(column.name) for i in good]
        columns[column.name] = [_value(v, column) for v in values]
    arrays, wrong = _arrays(columns, interface)
    errors |= {good[i]: reason for i, reason in wrong.items()}
    if errors:
        read = [place for place in range(len(good)) if place not in wrong]
        at = [good[place] for place in read]
        arrays = {name: _spread(values[read], at, len(rows)) for name, values in arrays.items()}
    return Rows(arrays, len(rows), "plain", errors, {i: _as_json(rows[i], i) for i in errors})


def _spread(values: np.ndarray, at: Sequence[int], rows: int) -> np.ndarray:
    """The values of some of all rows, at their places; NaN and b"" at others."""
    found = np.full((rows, *values.shape[1:]), b"" if values.dtype == object else np.nan, values.dtype)
    found[at] = values
    return found


def _as_json(row: Any, place: int) -> bytes:
    import orjson

    try:
        return orjson.dumps(row)
    except TypeError:  # it reads deeper lists than it writes
        raise bad_request(f"row {place}: is nested too deeply") from None


def _names_problem(row: Any, interface: Interface) -> str:
    if type(row) is not dict:
        return f"found {described(row)}; a row is an object with {', '.join(c.name for c in interface.columns)}"
    for column in interface.columns:
        if column.name not in row and column.name != interface.key:
            return f"{column.name}: is not in the row; takes {takes(column)}"
    known = {column.name for column in interface.columns} | interface.not_read
    for name in row:
        if name not in known:
            return (
                f"{name[:60]}: the model takes no such feature; it takes {', '.join(c.name for c in interface.columns)}"
            )
    return ""


def _value(value: Any, column: Input) -> Any:
    """A value in the form that other requests send; what it does not mean is left for the error."""
    if column.dtype == "string":
        if value is None:
            return "" if not column.image else value
        return str(value) if type(value) is int and not column.image else value
    if column.width is not None:
        return [np.nan if each is None else each for each in value] if type(value) is list else value
    return np.nan if value is None else value


def _arrays(columns: Mapping[str, Sequence[Any]], interface: Interface) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """The arrays, and why rows get no prediction."""
    found: dict[str, np.ndarray] = {}
    wrong: dict[int, str] = {}
    for column in interface.columns:
        values = columns[column.name]
        try:
            found[column.name] = array_of(values, column, str)
        except Refused:
            found[column.name], problems = _one_by_one(values, column, interface.missing)
            for row, reason in problems.items():
                wrong.setdefault(row, reason)
    return found, wrong


def _one_by_one(values: Sequence[Any], column: Input, missing: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
    tokens = missing_tokens(missing)
    parts: list[np.ndarray] = []
    problems: dict[int, str] = {}
    empty = np.full((1, *column.shape), b"" if column.dtype == "string" else np.nan, object)
    for row, value in enumerate(values):
        try:
            read = _read_texts(value, tokens) if column.dtype == "float32" else value
            parts.append(array_of([read], column, lambda _: ""))
        except Refused as refused:
            parts.append(empty)
            problems[row] = f"{column.name}: {str(refused).partition(': ')[2]}"
    dtype: Any = object if column.dtype == "string" else np.float32
    return np.concatenate(parts).astype(dtype), problems


def _read_texts(value: Any, tokens: MissingTokens) -> Any:
    """Numbers for texts, in a list as well.

    Raises:
      Refused: a text is not a number.
    """
    import pyarrow as pa

    if type(value) is list:
        return [_read_texts(each, tokens) if type(each) is str else each for each in value]
    if type(value) is not str:
        return value
    try:
        read, problems = numbers(pa.array([value.encode()], pa.binary()), tokens, if_absent=None)
    except UnicodeEncodeError:
        raise bad_request(": is not text") from None
    if problems:
        problem = problems[0]
        raise bad_request(f": {problem.reason} ({problem.detail})")
    return float(read[0])
