"""JSON values of one input to an array for the model: NumPy does the work per value, and an error names the value.

The array is float32 `[rows]` or `[rows, width]`, or objects of `bytes` `[rows]`. What is out of a float32's range
becomes infinite, which the model's own checks answer with an error of that row.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from schemas.spec.forms import RawColumn
from trainer.serving.errors import Refused, bad_request

_NUMBERS = frozenset({int, float})
_B64 = "b64"
_SHOWN = 60  # characters of a value in an error

Place = Callable[[int], str]  # a row's name in an error, such as `instances[3]`


def takes(column: RawColumn, *, image: bool = False) -> str:
    """What an input takes, for an error."""
    if image:
        return 'the bytes of an image file, as {"b64": "<base64>"}'
    if column.dtype == "string":
        return 'a string, or bytes as {"b64": "<base64>"} ("" where it is missing)'
    if column.width is None:
        return "a number (NaN where it is missing)"
    return f"a list of {column.width} numbers (NaN where one is missing)"


def array_of(values: Sequence[Any], column: RawColumn, place: Place, *, image: bool = False) -> np.ndarray:
    """The values of one input, one a row.

    Args:
      values: as JSON has them.
      column: the input.
      place: names a row in an error.
      image: whether the input takes files of images.

    Raises:
      Refused: a value is not what the input takes.
    """
    if column.dtype == "string":
        return strings(values, column, place, image=image)
    try:
        if column.width is None:
            return _floats(values, len(values))
        if set(map(type, values)) <= {list} and set(map(len, values)) <= {column.width}:
            size = len(values) * column.width
            return _floats(list(itertools.chain.from_iterable(values)), size).reshape(len(values), column.width)
    except (ValueError, OverflowError):
        pass
    row = next(row for row, value in enumerate(values) if not _is_numbers(value, column))
    raise _mistyped(values[row], column, place(row), image=image)


def strings(values: Sequence[Any], column: RawColumn, place: Place, *, image: bool = False) -> np.ndarray:
    """Objects of `bytes` `[rows]`, of strings and of base64."""
    found = np.empty(len(values), object)
    for row, value in enumerate(values):
        if type(value) is str and not image:
            try:
                found[row] = value.encode()
            except UnicodeEncodeError:
                raise bad_request(
                    f"{place(row)}, {column.name!r}: holds half of a surrogate pair, which is no character"
                ) from None
        elif type(value) is dict and len(value) == 1 and type(value.get(_B64)) is str:
            found[row] = _base64(value[_B64], column, place(row))
        else:
            raise _mistyped(value, column, place(row), image=image)
    return found


def _floats(values: Sequence[Any], size: int) -> np.ndarray:
    """float32 `[size]`; ValueError where one is no number."""
    if not set(map(type, values)) <= _NUMBERS:
        raise ValueError
    with np.errstate(over="ignore"):
        return np.fromiter(values, np.float32, size)


def _is_numbers(value: Any, column: RawColumn) -> bool:
    """Whether a value is what a numeric input takes."""
    if column.width is not None:
        return type(value) is list and len(value) == column.width and all(map(_is_number, value))
    return _is_number(value)


def _is_number(value: Any) -> bool:
    try:
        return type(value) in _NUMBERS and float(value) is not None
    except OverflowError:  # an integer of more than 300 digits
        return False


def _base64(text: str, column: RawColumn, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    try:  # without padding, as TensorFlow Serving takes it, too
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{where}, {column.name!r}: found text that is not base64") from None


def _mistyped(value: Any, column: RawColumn, where: str, *, image: bool) -> Refused:
    return bad_request(
        f"{where}, {column.name!r}: found {described(value, column)}; takes {takes(column, image=image)}"
    )


def described(value: Any, column: RawColumn | None = None) -> str:
    """A JSON value in an error: its type, and a short one itself."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"the string {value[:_SHOWN]!r}{'...' if len(value) > _SHOWN else ''}"
        case dict():
            return "an object"
        case int() | float():
            text = "an integer of too many digits" if isinstance(value, int) and abs(value) > 10**300 else str(value)
            return f"the number {text}" if text[0] != "a" else text
        case list() if column is not None and column.width is not None and len(value) == column.width:
            bad = next((each for each in value if not _is_number(each)), None)
            return f"{described(bad)} among its values"
        case list():
            return f"a list of {len(value):,}"
        case _:
            return type(value).__name__
