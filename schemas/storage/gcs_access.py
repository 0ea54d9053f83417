"""Refuses paths that TensorFlow would have to read or write itself, but cannot.

TensorFlow differs from Google's Python libraries in two ways. It takes brackets and backslashes for a glob pattern,
even in the path of a single file. And its client of gs:// supports fewer kinds of credentials. This client reads the
same credentials file as the Python libraries, or else asks the metadata server of the machine. If it does not support
the kind of credentials, it logs one line and continues without credentials; the server then refuses its requests, and
the error does not name the cause. So the credentials are checked here, before TensorFlow needs them.
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

_PATTERN = re.compile(r"\[[^/]*\]|\\")  # *, ? and a single bracket are harmless: as patterns they match themselves


def check_characters(path: str, where: str = "") -> None:
    """Refuses a folder in which TensorFlow would not find the checkpoints and graphs that it has written there itself.

    Args:
      path: the folder.
      where: the beginning of the message, such as the flag.

    Raises:
      UsageError: the path contains a pair of brackets or a backslash.
    """
    match = _PATTERN.search(path)
    if match is not None:
        raise UsageError(
            f"{where}{path}: TensorFlow takes {match[0]} for a pattern, and would not find the files that it has "
            "written; use a folder without brackets and backslashes in its path"
        )


def check_tensorflow(path: str) -> None:
    """Refuses a path that TensorFlow would have to read or write itself, if TensorFlow cannot.

    Args:
      path: a path. Local paths need no credentials.

    Raises:
      UsageError: TensorFlow takes the path for a pattern, or does not support the kind of credentials of this machine,
        such as workload identity federation.
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
