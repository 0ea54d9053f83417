"""The files that patterns name, listed in bounded memory, however many they are; and checks of those that are given.

Each file has a key, a hash of its name and path, and files are in the order of their keys. So what is drawn at random
for a file depends on its own name, and neither on the files beside it nor on where they lie; and the first files are a
random sample of all. What is more than a budget is sorted through temporary files on local disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import heapq
import json
import os
import shutil
import sys
import tempfile
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import cast

from schemas.errors import UsageError, readable
from schemas.storage.globs import MAGIC, matches
from schemas.storage.json_files import parse_json
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


def duplicate_note(kept: str, path: str) -> str:
    """The note about a file that is named more than once."""
    if kept == path:
        return f"{path} is named more than once; it is read once"
    return f"{kept} and {path} are the same file; it is read once"


BUDGET = 16 << 20  # bytes of rows in memory
MAX_RUNS = 64  # files that are merged at once: each is open while it is read

Row = tuple[str | int, ...]  # of one length and of the same types; rows are ordered as tuples


class ExternalSort:
    """Takes rows in any order, and yields them sorted, as often as it is gone through.

    The temporary files are removed when it is closed or garbage collected.

    Args:
      budget: about how many bytes of rows are held in memory.
    """

    def __init__(self, *, budget: int = BUDGET) -> None:
        self._budget = budget
        self._held: list[Row] = []
        self._size = 0
        self._runs: list[str] = []
        self._folder: str | None = None
        self._remove: Callable[[], object] = bool

    def add(self, row: Row) -> None:
        """Takes a row in."""
        self._held.append(row)
        # An object of Python takes about 50 bytes beside its text.
        self._size += 60 + sum(50 + len(part) if isinstance(part, str) else 32 for part in row)
        if self._size > self._budget:
            self._spill()

    def __iter__(self) -> Iterator[Row]:
        self._held.sort()
        return heapq.merge(*(_read(path) for path in self._runs), self._held) if self._runs else iter(self._held)

    def close(self) -> None:
        """Removes the temporary files."""
        self._held, self._runs = [], []
        self._remove()
        self._folder = None

    def _spill(self) -> None:
        self._held.sort()
        self._runs.append(self._write(iter(self._held)))
        self._held, self._size = [], 0
        if len(self._runs) == MAX_RUNS:
            merged = self._write(heapq.merge(*(_read(path) for path in self._runs)))
            for path in self._runs:
                os.remove(path)
            self._runs = [merged]

    def _write(self, rows: Iterator[Row]) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="millrace-")
            # Also when it is garbage collected, or when the process ends.
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = os.path.join(self._folder, uuid.uuid4().hex)
        with open(path, "w", encoding="ascii") as file:
            for row in rows:
                file.write(json.dumps(row))
                file.write("\n")
        return path


def _read(path: str) -> Iterator[Row]:
    with contextlib.closing(open(path, encoding="ascii")) as file:
        for line in file:
            yield tuple(parse_json(line))


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
        found = stat(self.path)
        return dataclasses.replace(self, size=found.size, version=found.version)


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

    def __init__(self, files: Iterable[tuple[str, FileStat | None]], *, budget: int = BUDGET) -> None:
        self._sorted = ExternalSort(budget=budget)
        self.files = self.bytes = 0
        self.unreadable: str | None = None
        for path, found in files:
            size, version = (0, "") if found is None else (found.size, found.version)
            self._sorted.add((file_key(path), path, size, version))
            self.files += 1
            if self.unreadable is None and not is_text(path):
                self.unreadable = path
            self.bytes += size

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
        for row in self._sorted:
            file = ListedFile(*cast("tuple[int, str, int, str]", row))
            if before is not None and before.key == file.key:
                raise UsageError(f"{before.path} and {file.path}: their names have the same hash; rename one of them")
            before = file
            yield file


def list_files(patterns: Sequence[str], *, on_duplicate: Callable[[str, str], None], budget: int = BUDGET) -> Listing:
    """The files that paths and globs name, each file once, under the path that was given first.

    Args:
      patterns: paths and globs.
      on_duplicate: called with (the path that is read, the other path) for each other path of a file.
      budget: about how many bytes of names are held in memory.

    Raises:
      UsageError: a path or its bucket does not exist, a glob matches no file, or there is no pattern.
    """
    by_identity = _matched(patterns, budget)
    listing = Listing(_once(by_identity, lambda _, other, kept: on_duplicate(kept, other)), budget=budget)
    by_identity.close()
    return listing


def _once(
    by_identity: ExternalSort, on_duplicate: Callable[[int, str, str], object]
) -> Iterator[tuple[str, FileStat | None]]:
    """The first path of each file; calls `on_duplicate` once for each other one: its pattern, it, and the first."""
    last, kept, others = "", "", set[str]()
    for row in by_identity:
        digest, number, path, size, version = cast("tuple[str, int, str, int, str]", row)
        if digest != last:
            last, kept, others = digest, path, set()
            yield path, FileStat(size, version) if version else None
        elif path not in others:
            others.add(path)
            on_duplicate(number, path, kept)


def expand(patterns: Sequence[str]) -> list[str]:
    """The same files as `list_files`, by their paths alone, sorted. Notes files that are named more than once.

    Args:
      patterns: paths and globs.

    Raises:
      UsageError: a path or its bucket does not exist or is a folder, a glob matches no file, or there is no pattern.
    """
    twice: list[tuple[int, str, str]] = []
    found = _once(_matched(patterns, BUDGET), lambda *names: twice.append(names))
    paths = sorted(path for path, _ in found)
    print_notes([duplicate_note(kept, other) for _, other, kept in sorted(twice)])
    return paths


def _matched(patterns: Sequence[str], budget: int) -> ExternalSort:
    """All that the patterns match, each with a digest of what identifies the file, in the order of the digests."""
    if not patterns:
        raise UsageError("no input: give at least one file or glob pattern")
    by_identity = ExternalSort(budget=budget)
    for number, pattern in enumerate(patterns):
        check_scheme(pattern)
        matched = False
        with wrap_listing(pattern):
            store = store_of(pattern)
            for path, found, identity in store.scan(pattern):
                matched = True
                digest = hashlib.blake2b(repr(identity).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
                size, version = (0, "") if found is None else (found.size, found.version)
                by_identity.add((digest, number, path, size, version))
            if not matched and not MAGIC & set(pattern) and store.exists(pattern):
                raise folder_error(pattern)
        if not matched and not MAGIC & set(pattern):
            raise UsageError(f"{pattern}: no such file")
        if not matched:
            deeper = f"{pattern.rstrip('/')}/*"
            inside = next(iter(store_of(deeper).scan(deeper)), None) is not None
            hint = f", but folders with files do; did you mean {deeper!r}?" if inside else ""
            raise UsageError(f"{pattern}: no file matches this pattern{hint}")
    return by_identity
