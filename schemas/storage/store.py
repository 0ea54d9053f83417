"""The interface of a store of files, and what all stores share."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Hashable, Iterator
from typing import BinaryIO, Protocol

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
    """The text with the queries of web addresses, passwords in addresses, bearer tokens and private keys left out."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes and its version: the mtime in nanoseconds, or the object's generation or ETag."""

    size: int
    version: str


@dataclasses.dataclass(frozen=True)
class Seen:
    """A file as it was read: its bytes (None: no file), and its generation, or ETag, on stores that have these."""

    data: bytes | None
    generation: int | str = 0


class Changed(MillraceError):
    """The file has changed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was changed by another process")


class Store(Protocol):
    """Files by path. Methods raise the errors of the system or the client library; `explain` says what they mean.

    To add a store, write a class with these methods, and add its prefix to `schemas.storage.paths`.
    """

    def explain(self, error: Exception) -> str | None:
        """The message of an error that this store raises, in one line without secrets; None for any other error."""

    def lacks_bucket(self, error: BaseException) -> bool:
        """Whether an error of a listing says that there is no such bucket."""

    def stat(self, path: str) -> FileStat:
        """A file's size and version."""

    def open(self, path: str, version: str | None) -> BinaryIO:
        """Opens a seekable binary file; MillraceError if a version is given and the file has another."""

    def read(self, path: str) -> bytes:
        """The complete content at one moment."""

    def write(self, path: str, data: bytes) -> None:
        """Writes a file in one step: readers see the old content or the new, never a part."""

    def delete(self, path: str) -> None:
        """Removes a file, if it exists."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where there is no such folder."""

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        """The files that a path or a glob names, in any order: path, size and version (None: unknown), and identity.

        Holds little in memory, however many files there are.
        """

    def identity(self, path: str) -> Hashable:
        """A value that is equal for two paths of the same file."""

    def make_folder(self, path: str) -> None:
        """Creates a folder and its parents, durably; does nothing on a store without folders."""

    def walk(self, path: str) -> Iterator[str]:
        """Yields the files below a folder, by their paths relative to it, sorted."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder and everything below it, if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames a file within this store."""

    def copy(self, source: str, target: str) -> None:
        """Copies a file of this store to another path, of this store or local, in one step."""

    def upload(self, local: str, target: str) -> None:
        """Copies a local file to this store, in one step."""

    def flush(self, path: str) -> None:
        """Flushes a folder, everything below it, and its own name to disk."""

    def flush_name(self, path: str) -> None:
        """Flushes the name of a file or folder to disk."""

    def look(self, path: str) -> Seen:
        """The file's current bytes, and what a swap compares with."""

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """Replaces or removes a file that has not changed; see `schemas.storage.folders.swap`."""

    def fence(self, path: str) -> None:
        """Makes every swap fail that has compared already and is not complete; it must compare again."""


def check_version(path: str, expected: str | None, found: str) -> None:
    """Raises MillraceError unless the version is the expected one; None accepts any."""
    if expected is not None and expected != found:
        raise MillraceError(
            f"{path}: changed while it was being read (version {found}, expected {expected}); start again"
        )


def folder_error(path: str) -> UsageError:
    """The error about a folder that is given as a file."""
    examples = f"{os.path.join(path, '*.csv')}, or {os.path.join(path, '*/*')} for images in folders"
    return UsageError(f"{path}: is a folder; give files, or a glob pattern such as {examples}")
