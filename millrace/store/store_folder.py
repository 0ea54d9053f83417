"""The folder of a store: who may write there, what a killed process left, and which files are too old."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping

from millrace.store import image_files
from millrace.store.columns import ID, SENT, Columns, digest_of_cells, inputs_of
from millrace.store.ids import FILE as IDS
from millrace.store.ids import Ids, Place, key_of
from millrace.store.kept_schemas import PREFIX as SCHEMA
from millrace.store.options import StoreError
from millrace.store.segment import (
    NAME,
    Segment,
    columns_in,
    csv_of,
    csv_path,
    journal_path,
    numbers,
    read_groups,
    read_journal,
)
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.storage import folders

LOCK = ".lock"


@contextlib.contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Explains errors of the disk."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; the requests were not stored") from error
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; the requests were not stored") from error


def locked(path: str) -> int:
    """Makes the folder, for this user alone, and locks it; the system frees the lock when the process ends.

    Raises:
      UsageError: another process has the lock, or the folder holds something else.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--store {path}: is not a folder")
    with store_errors(path):
        if not os.path.isdir(path):
            folders.make(os.path.dirname(os.path.abspath(path)))
            os.mkdir(path, 0o700)
        foreign = [name for name in storage.listdir(path) if not _own(name)]
        if foreign:
            raise UsageError(f"--store {path}: holds {foreign[0]!r}, which is no part of a store; give another folder")
        os.chmod(path, 0o700)
        handle = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise UsageError(f"--store {path}: another server writes there; give each its own folder") from None
    return handle


def _own(name: str) -> bool:
    known = name in (LOCK, image_files.FOLDER) or name.startswith((IDS, SCHEMA, f".{SCHEMA}"))
    return known or NAME.fullmatch(name) is not None


def complete_removals(path: str) -> None:
    """Removes the rest of files whose removal was killed: their lines go first."""
    for number in numbers(path):
        if not os.path.exists(csv_path(path, number)):
            image_files.remove_images(path, number)
            storage.delete(journal_path(path, number))


def take_up_last(path: str, columns: Columns, head: Mapping[str, object]) -> Segment | None:
    """The last file, cut to what is complete; None where there is none that takes these columns."""
    last = max(numbers(path), default=None)
    segment = None if last is None else Segment.reopen(path, last)
    if last is None or segment is None:
        return None
    found = read_journal(journal_path(path, last)).head
    if all(found.get(name) == value for name, value in head.items()):
        if columns.images:
            places = range(len(columns.inputs))
            named = {cells[i].decode() for _, _, cells in _lines(path, last) for i in places}
            image_files.remove_unnamed(path, last, named)
        return segment
    segment.close()
    return None


def index_segment(path: str, number: int, columns: Columns, head: Mapping[str, object], ids: Ids) -> None:
    """Adds the ids of a file from where the index ends."""
    journal = read_journal(journal_path(path, number))
    known = ids.upto(number)
    if known > journal.end:
        ids.cut(number, journal.end)
    if known >= journal.end:
        return
    names = columns_in(journal.head)
    same = all(journal.head.get(name) == head[name] for name in ("delimiter", "quote"))
    same = same and inputs_of(names) == inputs_of(columns.names)
    places = []
    for start, line, cells in _lines(path, number, after=known):
        found = dict(zip(names, cells, strict=True))  # of a file of an earlier release, without `SENT`
        values = (
            digest_of_cells(columns, cells, found.get(SENT, b"")) if same else b""
        )  # of other columns: other values
        places.append((key_of(found[ID].decode()), Place(number, start, len(line), values)))
    ids.add(places, segment=number, upto=journal.end)


def remove_old(path: str, *, before: float, spared: Segment | None) -> None:
    """Removes the files whose last request was received before a time, in seconds since 1970."""
    for number in numbers(path):
        if spared is not None and number == spared.number:
            continue
        last = read_journal(journal_path(path, number)).last
        if last and last < before:
            storage.delete(csv_path(path, number))
            image_files.remove_images(path, number)
            storage.delete(journal_path(path, number))


def _lines(path: str, number: int, *, after: int = 0) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Where each line of a file begins, the line, and its cells."""
    csv = csv_of(read_journal(journal_path(path, number)).head)
    for group, data in read_groups(path, number, after=after):
        start = group.start
        for line, cells in text.records(data, csv) if group.rows else ():
            yield start, line, cells
            start += len(line)
