"""The body of a request as a JSON value: strict, bounded in depth, no key twice, and NaN where it is allowed."""

from __future__ import annotations

import json
from typing import Any

from trainer.serving.errors import Refused, bad_request

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
