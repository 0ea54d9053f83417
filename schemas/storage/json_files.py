"""Reads JSON that others may have written, nested at most 200 levels deep.

The standard library's parser recurses, so that a file of brackets alone ends the process; this one does not.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pydantic_core import ValidationError, from_json

from schemas.errors import MillraceError
from schemas.storage.paths import exists, read_bytes

T = TypeVar("T")
DEPTH = 200  # of pydantic's parser
_RESTORE = "Restore the file, or write it again"


def parse_json(text: bytes | str) -> Any:
    """Returns the value of a JSON text in UTF-8, in which NaN and Infinity are numbers.

    Raises:
      ValueError: it is not JSON, or is nested more than 200 levels deep.
    """
    try:
        return from_json(text)
    except ValueError:
        if not (b"\\ud" in text if isinstance(text, bytes) else "\\ud" in text):
            raise
    # As Python writes a file's name that is not UTF-8: a lone surrogate, which only its own parser reads.
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(DEPTH + 1):
        level = [item for container in level if isinstance(container, list | dict) for item in _items(container)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _items(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def parse_object(text: bytes | str) -> dict[str, Any]:
    """Parses as `parse_json`; raises ValueError, too, if the value is not an object.

    >>> parse_object('{"a": [1, NaN]}')
    {'a': [1, nan]}
    """
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def read_object(path: str, what: str, *, advice: str = _RESTORE) -> dict[str, Any]:
    """Returns the object in a file.

    Args:
      path: the file.
      what: what the file holds, for messages.
      advice: what to do where it cannot be read.

    Raises:
      MillraceError: it cannot be read, or holds no JSON object.
    """
    try:
        return parse_object(read_bytes(path))
    except ValueError as error:
        raise MillraceError(f"{path}: cannot be read ({error}); expected {what} as JSON. {advice}.") from error


def read_if_there(path: str, what: str, *, advice: str = _RESTORE) -> dict[str, Any] | None:
    """Reads as `read_object`; returns None if there is no such file."""
    return read_object(path, what, advice=advice) if exists(path) else None


def read_versioned(path: str, version: int, what: str) -> dict[str, Any]:
    """Reads as `read_object` a file that names the version of its format by the key `format_version`.

    Raises:
      MillraceError: it cannot be read, or is of another version than this release reads.
    """
    advice = "Restore the file, or write the dataset again"
    content = read_object(path, what, advice=advice)
    written = content.get("format_version")
    if written is None:
        raise MillraceError(f"{path}: names no format_version; expected {what}. {advice}.")
    check_version(path, written, version, advice="write the dataset again")
    return content


def check_version(path: str, written: object, version: int, *, advice: str) -> None:
    """Refuses a file whose format has another version than this release reads.

    Args:
      path: the file.
      written: the version that the file names.
      version: the one that this release reads and writes.
      advice: how to have the file in that version.

    Raises:
      MillraceError: the versions differ.
    """
    if written != version:
        raise MillraceError(
            f"{path}: is of format version {str(written)[:40]}; this release reads version {version}. Use the release "
            f"that wrote it, or {advice}."
        )


def parse_as(parse: Callable[[bytes], T], data: bytes, path: str, version: int, what: str, advice: str) -> T:
    """Parses the JSON of a file by a function of pydantic, such as `Manifest.model_validate_json`.

    Args:
      parse: the function.
      data: the file's bytes.
      path: the file, for messages.
      version: the version of the file's format that this release reads.
      what: what the file holds, for messages.
      advice: how to have the file in that version.

    Raises:
      MillraceError: the file has another version, or does not hold `what`.
    """
    try:
        return parse(data)
    except ValidationError as error:
        with contextlib.suppress(ValueError):  # it is not JSON
            check_version(path, parse_object(data).get("format_version", version), version, advice=advice)
        raise MillraceError(
            f"{path}: {first_mistake(error)}. Expected {what} of format version {version}; {advice}."
        ) from error


def first_mistake(error: ValidationError) -> str:
    """Returns the first thing that is wrong, after its place: `splits.train.rows: Input should be ...`."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the whole file'}: {first['msg']}"


@contextlib.contextmanager
def as_written(path: str, what: str) -> Iterator[None]:
    """Wraps what takes a value of a file apart that may hold anything.

    Raises:
      MillraceError: it is not built as Millrace writes it.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        detail = f"{type(error).__name__}: {error}"[:200]
        raise MillraceError(f"{path}: is not as Millrace writes {what} ({detail}). {_RESTORE}.") from error


def read_lines(path: str, what: str) -> Iterator[dict[str, Any]]:
    """Yields the objects in a file of JSON lines. A last line without an end is left out: somebody is writing it.

    Raises:
      MillraceError: a line is no JSON object; the message names it.
    """
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):
        if line:
            try:
                yield parse_object(line)
            except ValueError as error:
                raise MillraceError(f"{path}: line {number:,}: {error}; expected {what}. {_RESTORE}.") from error
