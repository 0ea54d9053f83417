"""The files that patterns name, listed in bounded memory, however many they are; and checks of those that are given.

Each file has a key, a hash of its name and path, and files are in the order of their keys. So what is drawn at random
for a file depends on its own name, and neither on the files beside it nor on where they lie; and the first files are a
random sample of all. What is more than a budget is sorted through temporary files on local disk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sqlite3
import sys
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from schemas.errors import UsageError, readable
from schemas.storage.globs import MAGIC, matches
from schemas.storage.paths import check_scheme, is_local, join, stat, store_of, wrap_listing
from schemas.storage.store import FileStat, folder_error


def first_lines(lines: Sequence[str]) -> list[str]:
    """The first five lines, and a count of the rest."""
    return [*lines[:5], *([f"and {len(lines) - 5:,} more"] if len(lines) > 5 else [])]


def print_notes(lines: Sequence[str]) -> None:
    """Prints notes about the input, which are not errors, on standard error."""
    for line in first_lines(lines):
        print(line, file=sys.stderr, flush=True)


def is_text(path: str) -> bool:
    """Whether a path is UTF-8, so that a manifest can name it."""
    return path.isascii() or readable(path) == path


def check_names(paths: Iterable[str]) -> None:
    """Refuses a file of rows whose name is not UTF-8: manifests and predictions name it. (Such an image is a reject.)

    Raises:
      UsageError: there is one.
    """
    for path in paths:
        if not is_text(path):
            raise UsageError(
                f"{path}: this file's name is not UTF-8 text (its other bytes are shown as \\x..), so no manifest can "
                "name it. Rename the file, or give a pattern that does not match it; nothing was done."
            )


def check_apart(patterns: Sequence[str], output: str, *, inside: Sequence[str] = (), flag: str = "--output") -> None:
    """Refuses an output that a pattern of the input matches: the next run would read what this one writes.

    Args:
      patterns: paths and globs of the input.
      output: a file; or a folder, if `inside` names some of the files that will be in it.
      inside: examples of these, relative to the folder.
      flag: what names the output, for the message.

    Raises:
      UsageError: a pattern matches.
    """
    for name in [join(output, below) for below in inside] or [output]:
        for pattern in patterns:
            if MAGIC & set(pattern) and matches(_absolute(name), _absolute(pattern)):
                raise UsageError(
                    f"{flag} {output}: lies inside its own input {pattern}, so the next run would read what this one "
                    "writes. Use another place, or a narrower pattern."
                )


def _absolute(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path


def identity(path: str) -> Hashable:
    """A key that is equal for two paths of one file: device and inode locally, links followed; bucket and name on GCS.

    A file that does not exist is identified by its path.

    Raises:
      UsageError: a folder.
    """
    return store_of(path).identity(path)


def duplicate_note(first_path: str, path: str) -> str:
    """The note about a file that is named more than once."""
    if first_path == path:
        return f"{path} is named more than once; it is read once"
    return f"{first_path} and {path} are the same file; it is read once"


CACHE_KB = 16_000  # of rows in memory; SQLite sorts what is more through temporary files


def _database(owner: object, columns: str) -> sqlite3.Connection:
    """A table `files` in a temporary file, which goes when its owner is collected, or with the process."""
    database = sqlite3.connect("", check_same_thread=False)
    database.execute(f"pragma cache_size = {-CACHE_KB}")
    database.execute(f"create table files ({columns})")
    weakref.finalize(owner, database.close)
    return database


PATH_BITS = 43
FILE_KEYS = 1 << 63  # keys are less


@dataclasses.dataclass(frozen=True)
class ListedFile:
    """A file as it was listed: `version` is empty if it could not be looked at, as for a dangling link."""

    key: int
    path: str
    size: int
    version: str

    def checked(self) -> ListedFile:
        """The file, if it could be looked at.

        Raises:
          MillraceError: it could not, and still cannot.
        """
        if self.version:
            return self
        file_stat = stat(self.path)
        return dataclasses.replace(self, size=file_stat.size, version=file_stat.version)


def file_key(path: str) -> int:
    """The key of a file, from 0 to 2^63 - 1: 20 bits of a hash of its name, then 43 bits of a hash of its path.

    The name comes first so that files have the same order in whichever folder they lie (see `name_hash`).
    """
    name, whole = (_hash(text) for text in (path.rpartition("/")[2], path))
    return (name % (1 << 20)) << PATH_BITS | whole % (1 << PATH_BITS)


def name_hash(key: int) -> int:
    """The part of a key that is the same in whichever folder the file lies."""
    return key >> PATH_BITS


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


class Listing(Iterable[ListedFile]):
    """Files in the order of their keys, which can be gone through repeatedly.

    Attributes:
      files: how many there are.
      bytes: their total size.
      unreadable: the first path that is not UTF-8, if there is one.
    """

    def __init__(self, files: Iterable[tuple[str, FileStat | None]]) -> None:
        self.files = self.bytes = 0
        self.unreadable: str | None = None
        self._files = _database(self, "key, path, size, version")
        self._files.executemany("insert into files values (?, ?, ?, ?)", map(self._row, files))

    def _row(self, file: tuple[str, FileStat | None]) -> tuple[int, bytes, int, str]:
        path, file_stat = file
        size, version = (0, "") if file_stat is None else (file_stat.size, file_stat.version)
        self.files += 1
        self.bytes += size
        if self.unreadable is None and not is_text(path):
            self.unreadable = path
        return file_key(path), os.fsencode(path), size, version

    def __len__(self) -> int:
        return self.files

    def check_names(self) -> None:
        """See `schemas.storage.listing.check_names`."""
        check_names([] if self.unreadable is None else [self.unreadable])

    def __iter__(self) -> Iterator[ListedFile]:
        """Yields the files.

        Raises:
          UsageError: two paths have one key.
        """
        before = None
        for key, path, size, version in self._files.execute("select * from files order by key"):
            file = ListedFile(key, os.fsdecode(path), size, version)
            if before is not None and before.key == file.key:
                raise UsageError(f"{before.path} and {file.path}: their names have the same hash; rename one of them")
            before = file
            yield file


def list_files(patterns: Sequence[str], *, on_duplicate: Callable[[str, str], None]) -> Listing:
    """The files that paths and globs name, each file once, under the path that was given first.

    Args:
      patterns: paths and globs.
      on_duplicate: called with (the path that is read, the other path) for each other path of a file.

    Raises:
      UsageError: a path or its bucket does not exist, a glob matches no file, or there is no pattern.
    """
    return Listing(_Matches(patterns).files(lambda _, other, first: on_duplicate(first, other)))


class _Matches:
    """All paths that patterns match, each with a digest of what identifies its file.

    Raises:
      UsageError: see `list_files`.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        if not patterns:
            raise UsageError("no input: give at least one file or glob pattern")
        self._paths = _database(self, "digest, number, path, size, version")
        for number, pattern in enumerate(patterns):
            rows = _scanned(number, pattern)
            with wrap_listing(pattern):
                count = self._paths.executemany("insert into files values (?, ?, ?, ?, ?)", rows).rowcount
            if count < 1:
                raise _nothing_matches(pattern)

    def files(self, on_duplicate: Callable[[int, str, str], object]) -> Iterator[tuple[str, FileStat | None]]:
        """The first path of each file; calls `on_duplicate` once for each other path: its pattern, it, the first."""
        last, first, duplicates = b"", "", set[str]()
        for digest, number, name, size, version in self._paths.execute("select * from files order by 1, 2, 3"):
            path = os.fsdecode(name)
            if digest != last:
                last, first, duplicates = digest, path, set()
                yield path, FileStat(size, version) if version else None
            elif path not in duplicates:
                duplicates.add(path)
                on_duplicate(number, path, first)


def _scanned(number: int, pattern: str) -> Iterator[tuple[bytes, int, bytes, int, str]]:
    check_scheme(pattern)
    for path, file_stat, identity in store_of(pattern).scan(pattern):
        digest = hashlib.blake2b(repr(identity).encode("utf-8", "surrogateescape"), digest_size=16).digest()
        size, version = (0, "") if file_stat is None else (file_stat.size, file_stat.version)
        yield digest, number, os.fsencode(path), size, version


def _nothing_matches(pattern: str) -> UsageError:
    """The error about a path or a pattern that names no file."""
    if not MAGIC & set(pattern):
        with wrap_listing(pattern):
            return (
                folder_error(pattern) if store_of(pattern).exists(pattern) else UsageError(f"{pattern}: no such file")
            )
    deeper = f"{pattern.rstrip('/')}/*"
    inside = next(iter(store_of(deeper).scan(deeper)), None) is not None
    hint = f", but folders with files do; did you mean {deeper!r}?" if inside else ""
    return UsageError(f"{pattern}: no file matches this pattern{hint}")


def expand(patterns: Sequence[str]) -> list[str]:
    """The same files as `list_files`, by their paths alone, sorted. Notes files that are named more than once.

    Args:
      patterns: paths and globs.

    Raises:
      UsageError: a path or its bucket does not exist or is a folder, a glob matches no file, or there is no pattern.
    """
    twice: list[tuple[int, str, str]] = []
    paths = sorted(path for path, _ in _Matches(patterns).files(lambda *names: twice.append(names)))
    print_notes([duplicate_note(first, other) for _, other, first in sorted(twice)])
    return paths
