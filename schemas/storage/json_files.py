"""Reads JSON files that others may have written, nested at most 200 levels deep.

The parser of the standard library recurses, so a file of nothing but brackets can end the process. The functions here
raise an error that names the file instead.
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
      ValueError: the text is not JSON, or is nested more than 200 levels deep.
    """
    try:
        return from_json(text)
    except ValueError:
        if not (b"\\ud" in text if isinstance(text, bytes) else "\\ud" in text):
            raise
    # The text may hold a lone surrogate, such as "\udce9": Python writes so a byte of a file's name that is not UTF-8.
    # Only the parser of the standard library reads it, and that parser does not limit the depth: count the levels here.
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Go down level by level, without recursion, until no value has further values in it.
    level = [value]
    for _ in range(DEPTH + 1):
        level = [item for container in level if isinstance(container, list | dict) for item in _items(container)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _items(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def parse_object(text: bytes | str) -> dict[str, Any]:
    """Returns the object of a JSON text, parsed by `parse_json`.

    Raises:
      ValueError: the text is not JSON, is nested too deeply, or its value is not an object.

    >>> parse_object('{"a": [1, NaN]}')
    {'a': [1, nan]}
    """
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def read_object(path: str, what: str, *, advice: str = _RESTORE) -> dict[str, Any]:
    """Reads a JSON file and returns its object.

    Args:
      path: the file.
      what: a noun for what the file holds, for messages.
      advice: what to do if the file cannot be parsed, for messages.

    Raises:
      MillraceError: the file cannot be read, or holds no JSON object.
    """
    try:
        return parse_object(read_bytes(path))
    except ValueError as error:
        raise MillraceError(f"{path}: cannot be read ({error}); expected {what} as JSON. {advice}.") from error


def read_if_there(path: str, what: str, *, advice: str = _RESTORE) -> dict[str, Any] | None:
    """Reads a JSON file as `read_object` does; returns None if there is no such file."""
    return read_object(path, what, advice=advice) if exists(path) else None


def read_versioned(path: str, version: int, what: str) -> dict[str, Any]:
    """Reads a JSON file that names the version of its own format under the key `format_version`.

    Args:
      path: the file.
      version: the version that this release reads.
      what: a noun for what the file holds, for messages.

    Raises:
      MillraceError: the file cannot be read, holds no JSON object, names no version, or names another version.
    """
    advice = "Restore the file, or write the dataset again"
    content = read_object(path, what, advice=advice)
    written = content.get("format_version")
    if written is None:
        raise MillraceError(f"{path}: names no format_version; expected {what}. {advice}.")
    check_version(path, written, version, advice="write the dataset again")
    return content


def check_version(path: str, written: object, version: int, *, advice: str) -> None:
    """Raises an error if a file's format has another version than this release reads.

    Args:
      path: the file.
      written: the version that the file names.
      version: the version that this release reads and writes.
      advice: how to get the file in that version, for the message.

    Raises:
      MillraceError: the versions differ.
    """
    if written != version:
        raise MillraceError(
            f"{path}: is of format version {str(written)[:40]}; this release reads version {version}. Use the release "
            f"that wrote it, or {advice}."
        )


def parse_as(parse: Callable[[bytes], T], data: bytes, path: str, version: int, what: str, advice: str) -> T:
    """Parses the JSON of a file with a function of pydantic, such as `Manifest.model_validate_json`.

    If parsing fails, first compares the versions: "another format version" explains more than the first wrong field.

    Args:
      parse: the function of pydantic.
      data: the file's bytes.
      path: the file, for messages.
      version: the version of the file's format that this release reads.
      what: a noun for what the file holds, for messages.
      advice: how to get the file in that version, for messages.

    Raises:
      MillraceError: the file has another version, or does not hold `what`.
    """
    try:
        return parse(data)
    except ValidationError as error:
        with contextlib.suppress(ValueError):  # the file is not JSON at all: report pydantic's error below
            check_version(path, parse_object(data).get("format_version", version), version, advice=advice)
        raise MillraceError(
            f"{path}: {first_mistake(error)}. Expected {what} of format version {version}; {advice}."
        ) from error


def first_mistake(error: ValidationError) -> str:
    """Returns the first mistake that pydantic found, after its place: `splits.train.rows: Input should be ...`."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the whole file'}: {first['msg']}"


@contextlib.contextmanager
def as_written(path: str, what: str) -> Iterator[None]:
    """Turns errors of the block into a MillraceError that names the file.

    The block takes apart the parsed JSON of a file, which anybody may have edited, so that keys may be missing and
    values may be of another type.

    Args:
      path: the file.
      what: a noun for what the file holds, for the message.

    Raises:
      MillraceError: the file is not built as Millrace writes it.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        detail = f"{type(error).__name__}: {error}"[:200]
        raise MillraceError(f"{path}: is not as Millrace writes {what} ({detail}). {_RESTORE}.") from error


def read_lines(path: str, what: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines.

    A last line without a line end is left out, as it is still being written.

    Raises:
      MillraceError: a line is not a JSON object; the message names the line.
    """
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):
        if line:
            try:
                yield parse_object(line)
            except ValueError as error:
                raise MillraceError(f"{path}: line {number:,}: {error}; expected {what}. {_RESTORE}.") from error
