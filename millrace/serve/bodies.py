"""Plain rows: a list of objects with values as they stand in a raw file. A bad row gets an error of its own.

A number may be text, which is read as the preprocessing job reads it; null is missing; the key may be left out. What
else the schema declares, such as the label, may be there and is not read.

The body of a request as a JSON value: strict, bounded in depth, no key twice, and NaN where it is allowed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from millrace.serve.interface import Input, Interface, Refused, bad_request
from millrace.serve.requests import Rows, described, read_values, takes
from schemas.csv.numbers import missing_tokens

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
    nothing = {column.name: [np.nan] * column.width for column in interface.columns if column.width is not None}
    read = [nothing if i in errors else row for i, row in enumerate(rows)]
    arrays: dict[str, np.ndarray] = {}
    for column in interface.columns:
        values = [_value(row.get(column.name), column) for row in read]
        arrays[column.name], problems = read_values(values, column, missing_tokens(interface.missing))
        for i, problem in problems.items():
            errors.setdefault(i, f"{column.name}: {problem}")
    for found in arrays.values():
        found[list(errors)] = b"" if found.dtype == object else np.nan
    return Rows(arrays, len(rows), "plain", errors, {i: _as_json(rows[i], i) for i in errors})


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
