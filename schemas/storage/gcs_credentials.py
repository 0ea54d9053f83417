"""Checks Google's credentials for TensorFlow, whose gs:// client supports fewer kinds than Google's Python libraries.

TensorFlow reads the same file as they do, or else asks the metadata server of the machine. If it does not support the
credentials, it only logs a line and continues without any; requests are then refused without naming the cause.
"""

from __future__ import annotations

import os

from schemas.errors import UsageError
from schemas.storage.gcs_client import credentials_file
from schemas.storage.json_files import parse_json
from schemas.storage.paths import is_local, tensorflow_reads
from schemas.storage.tensorflow_paths import check_characters

USABLE = ("authorized_user", "service_account")
_CACHE = "To train on data in a bucket, give --cache_dir and a local --model_dir"


def check_tensorflow(path: str) -> None:
    """Refuses a path that TensorFlow would have to read or write itself if it cannot.

    Args:
      path: a path; local paths need no credentials.

    Raises:
      UsageError: TensorFlow takes the path for a pattern, has no client for the store, or does not support the kind of
        credentials, such as workload identity federation.
    """
    check_characters(path)
    problem = tensorflow_problem(path)
    if problem is None:
        return
    if not tensorflow_reads(path):
        raise UsageError(f"{path}: TensorFlow {problem}; use a local folder. {_CACHE}")
    raise UsageError(
        f"{path}: TensorFlow reads or writes it, and {problem}; use {' or '.join(USABLE)}, a machine with a "
        f"service account, or a local folder. {_CACHE}"
    )


def tensorflow_problem(path: str) -> str | None:
    """Why TensorFlow cannot read a path, or cannot with these credentials; None if it can, and for local paths."""
    if not tensorflow_reads(path):
        return f"cannot read or write {path.partition('://')[0]}://"
    if is_local(path) or "GOOGLE_AUTH_TOKEN_FOR_TESTING" in os.environ:
        return None
    file = credentials_file()
    try:
        with open(file, "rb") as opened:
            kind = parse_json(opened.read()).get("type")
    except (OSError, ValueError, AttributeError):  # no file, or an invalid one, which Google's library reports
        return None
    return None if kind in USABLE else f"cannot use the credentials in {file}, which are of type {kind!r}"
