"""The folder of a store: who may write there, its schemas and image files, and which files are too old."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping

import numpy as np

from millrace.store.columns import ID, SENT, Columns, digest_of_cells, inputs_of
from millrace.store.ids import FILE as IDS
from millrace.store.ids import Ids, Place, key_of
from millrace.store.options import StoreError
from millrace.store.segments import (
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
from schemas.spec.loader import AnySchema, load_schema
from schemas.storage import folders

FOLDER = "images"
_MAGIC = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"))


def folder_of(store: str, number: int) -> str:
    """The folder of the images that a segment names."""
    return os.path.join(store, FOLDER, f"{number:08d}")


def write_images(store: str, number: int, values: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
    """Writes files, and has them on disk before it returns. The same bytes are one file.

    Args:
      store: the store's folder.
      number: the segment whose lines will name them.
      values: the files' bytes by input, `[rows]`.

    Returns:
      By input, each file's path relative to the store; empty where there are no bytes.

    Raises:
      OSError: they cannot be written.
    """
    folder = folder_of(store, number)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        storage.sync_folder(os.path.dirname(folder))
        storage.sync_folder(store)
    named: dict[str, list[bytes]] = {}
    new = False
    for name, files in values.items():
        named[name] = []
        for data in files:
            file = f"{hashlib.sha256(data).hexdigest()[:32]}{_ending(data)}"
            if data and not os.path.exists(os.path.join(folder, file)):
                _write(os.path.join(folder, file), data)
                new = True
            named[name].append(f"{FOLDER}/{number:08d}/{file}".encode() if data else b"")
    if new:
        storage.sync_folder(folder)
    return named


def remove_images(store: str, number: int) -> None:
    """Removes the images of a segment."""
    folders.remove(folder_of(store, number))


def remove_unnamed(store: str, number: int, named: set[str]) -> None:
    """Removes the files that no line names: a kill came between a file and its line."""
    folder = folder_of(store, number)
    for name in storage.listdir(folder):
        if f"{FOLDER}/{number:08d}/{name}" not in named:
            storage.delete(os.path.join(folder, name))


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(temporary, path)


def _ending(data: bytes) -> str:
    return next((ending for magic, ending in _MAGIC if data.startswith(magic)), ".bin")


PREFIX = "schema-"


def keep_schema(store: str, schema: AnySchema, schema_yaml: bytes) -> None:
    """Writes a schema, unless it is there."""
    path = _path(store, schema.fingerprint)
    if not os.path.exists(path):
        storage.write_bytes(path, schema_yaml)
        os.chmod(path, 0o600)


def read_schema(store: str, fingerprint: str) -> AnySchema:
    """Reads one.

    Raises:
      UsageError: it is not there.
    """
    path = _path(store, fingerprint)
    if not os.path.exists(path):
        raise UsageError(f"{path}: missing; put the export's assets.extra/schema.yaml there")
    return load_schema(path)


def _path(store: str, fingerprint: str) -> str:
    return os.path.join(store, f"{PREFIX}{fingerprint[:16]}.yaml")


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
    known = name in (LOCK, FOLDER) or name.startswith((IDS, PREFIX, f".{PREFIX}"))
    return known or NAME.fullmatch(name) is not None


def complete_removals(path: str) -> None:
    """Removes the rest of files whose removal was killed: their lines go first."""
    for number in numbers(path):
        if not os.path.exists(csv_path(path, number)):
            remove_images(path, number)
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
            remove_unnamed(path, last, named)
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
            remove_images(path, number)
            storage.delete(journal_path(path, number))


def _lines(path: str, number: int, *, after: int = 0) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Where each line of a file begins, the line, and its cells."""
    csv = csv_of(read_journal(journal_path(path, number)).head)
    for group, data in read_groups(path, number, after=after):
        start = group.start
        for line, cells in text.records(data, csv) if group.rows else ():
            yield start, line, cells
            start += len(line)
