"""Lists the files that patterns name, in bounded memory, even millions of files.

Each file has a key, a hash of its name and its path, and a listing has its files in the order of their keys. This has
two advantages. Random decisions about a file follow from the file's own name, so they stay the same if other files are
added or the folder is moved. And the first files of a listing are a random sample of all of them.

SQLite sorts the files. If they do not fit in its cache, it uses temporary files on local disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import sqlite3
import sys
import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence

from schemas.errors import UsageError, readable
from schemas.storage.globs import MAGIC, matches
from schemas.storage.paths import check_scheme, is_local, join, stat, store_of, wrap_listing
from schemas.storage.store import FileStat, folder_error


def first_lines(lines: Sequence[str]) -> list[str]:
    """Returns the first five of some lines, and a line that counts the rest, if there are more.

    >>> first_lines([str(number) for number in range(7)])[-2:]
    ['4', 'and 2 more']
    """
    return [*lines[:5], *([f"and {len(lines) - 5:,} more"] if len(lines) > 5 else [])]


def print_notes(lines: Sequence[str]) -> None:
    """Prints notes about the input, at most five, to standard error. Notes are not errors."""
    for line in first_lines(lines):
        print(line, file=sys.stderr, flush=True)


def is_text(path: str) -> bool:
    """Returns whether a path is valid UTF-8. A manifest, which is JSON, can name only such paths."""
    return path.isascii() or readable(path) == path


def check_names(paths: Iterable[str]) -> None:
    """Refuses files of rows whose names are not UTF-8, because manifests and predictions could not name them.

    An image with such a name is only rejected, like a damaged image, and the job goes on.

    Raises:
      UsageError: a name is not UTF-8.
    """
    for path in paths:
        if not is_text(path):
            raise UsageError(
                f"{path}: this file's name is not UTF-8 text (its other bytes are shown as \\x..), so no manifest can "
                "name it. Rename the file, or give a pattern that does not match it; nothing was done."
            )


def check_apart(patterns: Sequence[str], output: str, *, inside: Sequence[str] = (), flag: str = "--output") -> None:
    """Refuses an output that a pattern of the input matches, because the next run would read what this run writes.

    Args:
      patterns: paths and globs of the input.
      output: a file; or a folder, if `inside` is given.
      inside: names of some files that will be in the folder `output`, relative to it.
      flag: the flag that names the output, for the message.

    Raises:
      UsageError: a pattern matches the output.
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
    """Returns a key that is equal for two paths of the same file.

    The key is the device and inode of the file, links followed; on GCS the path; and for a file that does not exist its
    path, links resolved.

    Raises:
      UsageError: the path is a folder.
    """
    return store_of(path).identity(path)


def duplicate_note(first_path: str, path: str) -> str:
    """Returns the note for the user about a file that is named more than once.

    Args:
      first_path: the path under which the file is read.
      path: the other path of the same file, which may be equal.
    """
    if first_path == path:
        return f"{path} is named more than once; it is read once"
    return f"{first_path} and {path} are the same file; it is read once"


CACHE_KB = 16_000  # size of SQLite's cache; further rows are sorted through temporary files


def _database(columns: str) -> sqlite3.Connection:
    """Creates a database in a temporary file, with a table `files`. The file is removed when the database is closed."""
    database = sqlite3.connect("", check_same_thread=False)
    database.execute(f"pragma cache_size = {-CACHE_KB}")
    database.execute(f"create table files ({columns})")
    return database


PATH_BITS = 43
FILE_KEYS = 1 << 63  # all keys are smaller than this


@dataclasses.dataclass(frozen=True)
class ListedFile:
    """A file with its key, path, size in bytes, and version.

    The version is '' and the size 0 if the path is not a readable file, such as a dangling link.
    """

    key: int
    path: str
    size: int
    version: str

    def checked(self) -> ListedFile:
        """Returns the file with its size and version. If the listing did not find them, they are asked for again.

        Raises:
          MillraceError: the file cannot be read.
        """
        if self.version:
            return self
        file_stat = stat(self.path)
        return dataclasses.replace(self, size=file_stat.size, version=file_stat.version)


def file_key(path: str) -> int:
    """Returns the key of a file, from 0 to 2^63 - 1: 20 bits of a hash of its name, then 43 bits of a hash of its path.

    The name's bits come first so that files have the same order whichever folder they are in (see `name_hash`).
    """
    name, whole = (_hash(text) for text in (path.rpartition("/")[2], path))
    # The lowest 20 bits of the name's hash become the upper bits of the key, and 43 bits of the path's hash the lower
    # bits.
    return (name % (1 << 20)) << PATH_BITS | whole % (1 << PATH_BITS)


def name_hash(key: int) -> int:
    """Returns the part of a file's key that comes from its name, and so is the same in whichever folder the file is."""
    return key >> PATH_BITS


def _hash(text: str) -> int:
    """Returns 64 bits of a hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


class Listing(Iterable[ListedFile]):
    """Files in the order of their keys. The listing can be iterated over repeatedly.

    Attributes:
      files: the number of files.
      bytes: the total size of the files.
      unreadable: the first path that is not UTF-8; None if all paths are UTF-8.
    """

    def __init__(self, files: Iterable[tuple[str, FileStat | None]]) -> None:
        self.files = self.bytes = 0
        self.unreadable: str | None = None
        self._files = _database("key, path, size, version")
        weakref.finalize(self, self._files.close)
        self._files.executemany("insert into files values (?, ?, ?, ?)", map(self._row, files))

    def _row(self, file: tuple[str, FileStat | None]) -> tuple[int, bytes, int, str]:
        """Counts a file, and returns its row of the table."""
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
        """Checks the names of all files with the function `check_names`."""
        check_names([] if self.unreadable is None else [self.unreadable])

    def __iter__(self) -> Iterator[ListedFile]:
        """Yields the files in the order of their keys.

        Raises:
          UsageError: two paths have the same key.
        """
        before = None
        for key, path, size, version in self._files.execute("select * from files order by key"):
            file = ListedFile(key, os.fsdecode(path), size, version)
            if before is not None and before.key == file.key:
                raise UsageError(f"{before.path} and {file.path}: their names have the same hash; rename one of them")
            before = file
            yield file


def list_files(patterns: Sequence[str]) -> tuple[Listing, list[tuple[str, str]]]:
    """Lists the files that paths and globs name. A file with several paths is listed once, under the path given first.

    Args:
      patterns: paths and globs, local or gs://.

    Returns:
      The files; and a pair for each further path of a listed file: (the path under which the file is listed, the
      further path).

    Raises:
      UsageError: a path or its bucket does not exist, a path is a folder, a glob matches no file, or `patterns` is
        empty.
    """
    if not patterns:
        raise UsageError("no input: give at least one file or glob pattern")
    duplicates: dict[tuple[str, str], None] = {}
    database = _database("digest, number, path, size, version")
    with contextlib.closing(database):
        for number, pattern in enumerate(patterns):
            with wrap_listing(pattern):
                count = database.executemany(
                    "insert into files values (?, ?, ?, ?, ?)", _rows(number, pattern)
                ).rowcount
            if count < 1:
                raise _nothing_matches(pattern)
        rows = database.execute("select digest, path, size, version from files order by digest, number, path")
        return Listing(_first_paths(rows, duplicates)), list(duplicates)


def _rows(number: int, pattern: str) -> Iterator[tuple[bytes, int, bytes, int, str]]:
    """Yields a row for each path that a pattern matches.

    A row is a digest of the file's identity, the pattern's number, the path, the size and the version.
    """
    check_scheme(pattern)
    for path, file_stat, identity in store_of(pattern).scan(pattern):
        digest = hashlib.blake2b(repr(identity).encode("utf-8", "surrogateescape"), digest_size=16).digest()
        size, version = (0, "") if file_stat is None else (file_stat.size, file_stat.version)
        yield digest, number, os.fsencode(path), size, version


def _first_paths(
    rows: Iterable[tuple[bytes, bytes, int, str]], duplicates: dict[tuple[str, str], None]
) -> Iterator[tuple[str, FileStat | None]]:
    """Yields the first path of each file, and adds the file's further paths to `duplicates`.

    Rows of one file have the same digest and follow one another.
    """
    last_digest, first = b"", ""
    for digest, path, size, version in rows:
        if digest == last_digest:
            duplicates[first, os.fsdecode(path)] = None
            continue
        last_digest, first = digest, os.fsdecode(path)
        yield first, FileStat(size, version) if version else None


def _nothing_matches(pattern: str) -> UsageError:
    """Returns the error about a path or a pattern that names no file."""
    if not MAGIC & set(pattern):
        with wrap_listing(pattern):
            is_there = store_of(pattern).exists(pattern)
        return folder_error(pattern) if is_there else UsageError(f"{pattern}: no such file")
    deeper = f"{pattern.rstrip('/')}/*"
    inside = next(iter(store_of(deeper).scan(deeper)), None) is not None
    hint = f", but folders with files do; did you mean {deeper!r}?" if inside else ""
    return UsageError(f"{pattern}: no file matches this pattern{hint}")


def expand(patterns: Sequence[str]) -> list[str]:
    """Returns the paths of the files that `list_files` lists, sorted. Prints a note for each further path of a file.

    Raises:
      UsageError: a path does not exist or is a folder, or a glob matches no file (see `list_files`).
    """
    listing, duplicates = list_files(patterns)
    print_notes([duplicate_note(*paths) for paths in sorted(duplicates)])
    return sorted(file.path for file in listing)
