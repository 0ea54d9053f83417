"""The body of a request as a JSON value: strict, bounded in depth, and with NaN where it is taken."""

from __future__ import annotations

import json
from typing import Any

from trainer.serving.errors import bad_request

_UNUSUAL = (b"NaN", b"Infinity")  # not JSON, and taken where TensorFlow Serving takes them


def parse(body: bytes, *, not_finite: bool) -> Any:
    """The value that a body holds.

    Args:
      body: UTF-8.
      not_finite: whether NaN, Infinity and -Infinity are numbers.

    Raises:
      Refused: it is not JSON.
    """
    import orjson

    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not_finite and any(word in body for word in _UNUSUAL):
            return _with_words(body)
        raise bad_request(f"the body is not JSON: {error}") from None


def _with_words(body: bytes) -> Any:
    try:
        return json.loads(body.decode())
    except RecursionError:
        raise bad_request("the body is not JSON that is read here: it is nested too deeply") from None
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
