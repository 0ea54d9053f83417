"""Defines the classes that all stores share: a file's size and version, snapshots; and hides secrets in messages."""

from __future__ import annotations

import dataclasses
import os
import re

from schemas.errors import MillraceError, UsageError

HIDDEN = "<hidden>"
# The secrets that a message may contain, as pattern and replacement.
_RULES = (
    (re.compile(r"(https?://[^\s?#'\"<>]*\?)[^\s'\"<>]+"), rf"\1{HIDDEN}"),  # a signed address, an upload's session
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"<>]+@"), rf"\1{HIDDEN}@"),  # user:password@
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bya29\.[\w.-]+|\bAIza[\w-]{20,}|\bAKIA[0-9A-Z]{12,}"), HIDDEN),  # Google's tokens and keys, Amazon's
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
)


def redacted(text: str) -> str:
    """Returns a text with `<hidden>` in place of its secrets.

    Secrets are the queries of web addresses, passwords in addresses, bearer tokens, keys of Google and Amazon, and
    private keys.
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes, and its version, a text that changes with the content.

    The version is the time of modification in nanoseconds on local disk, and the generation of an object in a bucket.
    """

    size: int
    version: str


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A file at the moment when it was read. `swap` compares the file with its snapshot.

    Attributes:
      data: the bytes of the file; None if there was no file.
      generation: the object's generation, on stores that have generations; 0 elsewhere, and if there was no object.
    """

    data: bytes | None
    generation: int | str = 0


class Changed(MillraceError):
    """A file was not swapped, because it has changed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was changed by another process")


def check_version(path: str, expected: str | None, version: str) -> None:
    """Raises an error if a file has another version than expected.

    Args:
      path: the file, for the message.
      expected: the expected version; None accepts any version.
      version: the version that the file has now.

    Raises:
      MillraceError: the versions differ.
    """
    if expected is not None and expected != version:
        raise MillraceError(
            f"{path}: changed while it was being read (version {version}, expected {expected}); start again"
        )


def folder_error(path: str) -> UsageError:
    """Returns the error for a user who gave a folder where files are expected."""
    examples = f"{os.path.join(path, '*.csv')}, or {os.path.join(path, '*/*')} for images in folders"
    return UsageError(f"{path}: is a folder; give files, or a glob pattern such as {examples}")
