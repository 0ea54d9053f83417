"""JSON files of a run that name the version of their format."""

from __future__ import annotations

import json
from typing import Any

from schemas import storage
from schemas.errors import MillraceError


def read_versioned(path: str, version: int, *, what: str) -> dict[str, Any]:
    """The content of such a file.

    Args:
      path: the file.
      version: the version that this release reads, of the key `format_version`.
      what: what the file holds, for messages.

    Raises:
      MillraceError: it cannot be read, or is of another version.
    """
    try:
        found: dict[str, Any] = json.loads(storage.read_bytes(path))
        written = found["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise MillraceError(
            f"{path}: cannot be read ({error}); expected {what} as JSON. Restore the file, or write the dataset again."
        ) from error
    if written != version:
        raise MillraceError(
            f"{path}: is of format version {written}; this release reads version {version}. Use the release "
            "that wrote the dataset."
        )
    return found
