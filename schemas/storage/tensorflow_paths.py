"""Paths that TensorFlow cannot use, as it takes some characters for a pattern even where it is given a file's path."""

from __future__ import annotations

import re

from schemas.errors import UsageError

_PATTERN = re.compile(r"\[[^/]*\]|\\")  # *, ? and a single bracket do no harm: as patterns they match themselves


def check_characters(path: str, where: str = "") -> None:
    """Refuses a folder in which TensorFlow would not find the checkpoints and graphs that it has written there.

    Raises:
      UsageError: the path contains brackets or a backslash; the message begins with `where`.
    """
    found = _PATTERN.search(path)
    if found is not None:
        raise UsageError(
            f"{where}{path}: TensorFlow takes {found[0]} for a pattern, and would not find the files that it has "
            "written; use a folder without brackets and backslashes in its path"
        )
