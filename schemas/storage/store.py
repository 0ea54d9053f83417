"""Defines what all stores share: a file's size and version, snapshots, and errors without secrets."""

from __future__ import annotations

import dataclasses
import os
import re

from schemas.errors import MillraceError, UsageError

HIDDEN = "<hidden>"
_RULES = (
    (re.compile(r"(https?://[^\s?#'\"<>]*\?)[^\s'\"<>]+"), rf"\1{HIDDEN}"),  # a signed address, an upload's session
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"<>]+@"), rf"\1{HIDDEN}@"),  # user:password@
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bya29\.[\w.-]+|\bAIza[\w-]{20,}|\bAKIA[0-9A-Z]{12,}"), HIDDEN),  # Google's tokens and keys, Amazon's
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
)


def redacted(text: str) -> str:
    """Returns the text with the queries of web addresses, passwords in addresses, bearer tokens and private keys left
    out."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes and its version: the mtime in nanoseconds, or the object's generation or ETag."""

    size: int
    version: str


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A file as it was read: its bytes (None: no file), and its generation, or ETag, on stores that have these."""

    data: bytes | None
    generation: int | str = 0


class Changed(MillraceError):
    """The file has changed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was changed by another process")


def check_version(path: str, expected: str | None, version: str) -> None:
    """Raises MillraceError unless the version is the expected one; None accepts any."""
    if expected is not None and expected != version:
        raise MillraceError(
            f"{path}: changed while it was being read (version {version}, expected {expected}); start again"
        )


def folder_error(path: str) -> UsageError:
    """Returns the error about a folder that is given as a file."""
    examples = f"{os.path.join(path, '*.csv')}, or {os.path.join(path, '*/*')} for images in folders"
    return UsageError(f"{path}: is a folder; give files, or a glob pattern such as {examples}")
