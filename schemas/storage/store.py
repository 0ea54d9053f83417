"""What a store of files can do, and what all stores have in common."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator
from typing import BinaryIO, Protocol

from schemas.errors import MillraceError
from schemas.storage.redact import redacted


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes and its version: the mtime in nanoseconds, or the object's generation."""

    size: int
    version: str


@dataclasses.dataclass(frozen=True)
class Seen:
    """A file as it was seen: its bytes, None where there was none, and the generation where the store counts them."""

    data: bytes | None
    generation: int = 0


class Changed(MillraceError):
    """The file is not what it was when it was looked at."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was changed by another process")


class Store(Protocol):
    """Files by path. What goes wrong is raised as the system's or the client library's own error; see `wrap_errors`.

    To add a store is to write a class of these methods, and to name its prefix in `schemas.storage.paths`.
    """

    def stat(self, path: str) -> FileStat:
        """A file's size and version."""

    def open(self, path: str, version: str | None) -> BinaryIO:
        """A seekable binary file; MillraceError unless it is of that version, where one is given."""

    def read(self, path: str) -> bytes:
        """The whole file as it was at one moment."""

    def write(self, path: str, data: bytes) -> None:
        """Puts a whole file in one step: readers see the old content or the new, never a part."""

    def delete(self, path: str) -> None:
        """Removes a file; it is no error if there is none."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where there is no such folder."""

    def matches(self, pattern: str) -> list[str]:
        """The paths that a path or a glob names; empty where there are none."""

    def identity(self, path: str) -> Hashable:
        """What two paths of one file share."""

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it, to survive a power cut, where the store has folders."""

    def walk(self, path: str) -> Iterator[str]:
        """Every file below a folder, by its path relative to it, sorted."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder and all below it; it is no error if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Gives a file of this store another name in it."""

    def upload(self, local: str, target: str) -> None:
        """Copies a local file here, in one step."""

    def flush(self, path: str) -> None:
        """Has a folder, all below it, and its own name survive a power cut."""

    def flush_name(self, path: str) -> None:
        """Has the name of a file or folder survive a power cut."""

    def look(self, path: str) -> Seen:
        """The file's present bytes, and what a swap compares with."""

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """Replaces or removes a file that is as it was seen; see `schemas.storage.compare_and_swap.swap`."""

    def fence(self, path: str) -> None:
        """From here on no swap succeeds that compared earlier: it finds out that it has to compare again."""


@contextlib.contextmanager
def wrap_errors(path: str) -> Iterator[None]:
    """Turns what goes wrong with a file, on disk or in the cloud, into a MillraceError that names it."""
    try:
        yield
    except OSError as error:
        raise MillraceError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        if type(error).__module__.startswith("google."):  # not imported unless gs:// is used
            if type(error).__name__ == "NotFound":
                raise MillraceError(f"{path}: no such object or bucket, or it was replaced in the meantime") from error
            raise MillraceError(f"{path}: {redacted(str(error))}") from error
        raise


def check_version(path: str, expected: str | None, found: str) -> None:
    """MillraceError unless the version found is the expected one; None: any will do."""
    if expected is not None and expected != found:
        raise MillraceError(
            f"{path}: changed while it was being read (version {found}, expected {expected}); start again"
        )
