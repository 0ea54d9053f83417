"""Refuses paths that TensorFlow would have to read or write itself, and cannot.

It takes some characters for a pattern, even in the path of a file. Its client of gs:// supports fewer kinds of
credentials than Google's Python libraries. It reads the same file as they do, or else asks the metadata server of the
machine. If it does not support the credentials, it only logs a line and continues without any; requests are then
refused without naming the cause.
"""

from __future__ import annotations

import os
import re

from schemas.errors import UsageError
from schemas.storage.gcs_errors import credentials_file
from schemas.storage.json_files import parse_json
from schemas.storage.paths import is_local

USABLE = ("authorized_user", "service_account")
_CACHE = "To train on data in a bucket, give --cache_dir and a local --model_dir"

_PATTERN = re.compile(r"\[[^/]*\]|\\")  # *, ? and a single bracket do no harm: as patterns they match themselves


def check_characters(path: str, where: str = "") -> None:
    """Refuses a folder in which TensorFlow would not find the checkpoints and graphs that it has written there.

    Raises:
      UsageError: the path contains brackets or a backslash; the message begins with `where`.
    """
    match = _PATTERN.search(path)
    if match is not None:
        raise UsageError(
            f"{where}{path}: TensorFlow takes {match[0]} for a pattern, and would not find the files that it has "
            "written; use a folder without brackets and backslashes in its path"
        )


def check_tensorflow(path: str) -> None:
    """Refuses a path that TensorFlow would have to read or write itself if it cannot.

    Args:
      path: a path; local paths need no credentials.

    Raises:
      UsageError: TensorFlow takes the path for a pattern, or does not support the kind of credentials, such as workload
        identity federation.
    """
    check_characters(path)
    if is_local(path) or "GOOGLE_AUTH_TOKEN_FOR_TESTING" in os.environ:
        return
    file = credentials_file()
    try:
        with open(file, "rb") as opened:
            kind = parse_json(opened.read()).get("type")
    except (OSError, ValueError, AttributeError):  # no file, or an invalid one, which Google's library reports
        return
    if kind not in USABLE:
        raise UsageError(
            f"{path}: TensorFlow reads or writes it, and cannot use the credentials in {file}, which are of type "
            f"{kind!r}; use {' or '.join(USABLE)}, a machine with a service account, or a local folder. {_CACHE}"
        )
