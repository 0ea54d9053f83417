"""The folder of a store: who may write there, its schemas and image files, and which files are too old."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from millrace.store.columns import ID, SENT, Columns, digest_of_cells, inputs_of
from millrace.store.ids import FILE as IDS
from millrace.store.ids import Ids, Place, StoreError, key_of
from millrace.store.segments import NAME, Segment, csv_path, journal_path, numbers, read_groups, read_journal
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema, load_schema
from schemas.storage import folders

LOCK, IMAGES, SCHEMA = ".lock", "images", "schema-"
_MAGIC = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"))


@contextlib.contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Explains errors of the disk."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{path}: {reason}; the requests were not stored") from error


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
        if storage.lock(handle, wait=False):
            return handle
        os.close(handle)
        raise UsageError(f"--store {path}: another server writes there; give each its own folder")


def _own(name: str) -> bool:
    known = name in (LOCK, IMAGES) or name.startswith((IDS, SCHEMA, f".{SCHEMA}"))
    return known or NAME.fullmatch(name) is not None


def keep_schema(store: str, schema: AnySchema, schema_yaml: bytes) -> None:
    """Writes the schema of stored requests, unless it is there: what the columns are, and what a label is."""
    path = _schema_path(store, schema.fingerprint)
    if not os.path.exists(path):
        storage.write_bytes(path, schema_yaml)
        os.chmod(path, 0o600)


def read_schema(store: str, fingerprint: str) -> AnySchema:
    """Reads one.

    Raises:
      UsageError: it is not there.
    """
    path = _schema_path(store, fingerprint)
    if not os.path.exists(path):
        raise UsageError(f"{path}: missing; put the export's assets.extra/schema.yaml there")
    return load_schema(path)


def _schema_path(store: str, fingerprint: str) -> str:
    return os.path.join(store, f"{SCHEMA}{fingerprint[:16]}.yaml")


def write_images(store: str, number: int, values: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
    """Writes image files, and has them on disk before it returns. The same bytes are one file.

    Args:
      store: the store's folder.
      number: the segment whose lines will name them.
      values: the files' bytes by input, `[rows]`.

    Returns:
      By input, each file's path relative to the store, named by the digest of its bytes; empty where there are none.

    Raises:
      OSError: they cannot be written.
    """
    folder = _images_of(store, number)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        storage.sync_folder(os.path.dirname(folder))
        storage.sync_folder(store)
    named: dict[str, list[bytes]] = {}
    new = False
    for name, files in values.items():
        named[name] = []
        for data in files:
            ending = next((ending for magic, ending in _MAGIC if data.startswith(magic)), ".bin")
            path = os.path.join(folder, f"{hashlib.sha256(data).hexdigest()[:32]}{ending}")
            if data and not os.path.exists(path):
                with open(os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(f"{path}.tmp", path)
                new = True
            named[name].append(os.path.relpath(path, store).encode() if data else b"")
    if new:
        storage.sync_folder(folder)
    return named


def _images_of(store: str, number: int) -> str:
    return os.path.join(store, IMAGES, f"{number:08d}")


def reopen_last(path: str, columns: Columns, head: Mapping[str, Any]) -> Segment | None:
    """The last file, cut to what is complete; None where there is none that takes these columns."""
    last = max(numbers(path), default=None)
    segment = None if last is None else Segment.reopen(path, last)
    if last is None or segment is None:
        return None
    found = read_journal(path, last).head
    if any(found.get(name) != value for name, value in head.items()):
        segment.close()
        return None
    if columns.images:  # a kill may have come between a file and its line
        width = len(columns.inputs)
        named = {os.path.basename(cell.decode()) for _, _, cells in _lines(path, last) for cell in cells[:width]}
        for name in set(storage.listdir(_images_of(path, last))) - named:
            storage.delete(os.path.join(_images_of(path, last), name))
    return segment


def index_segment(path: str, number: int, columns: Columns, head: Mapping[str, Any], ids: Ids) -> None:
    """Adds the ids of a file from where the index ends."""
    journal = read_journal(path, number)
    known = ids.upto(number)
    if known > journal.end:
        ids.cut(number, journal.end)
    if known >= journal.end:
        return
    same = all(journal.head[name] == head[name] for name in ("delimiter", "quote"))
    same = same and inputs_of(journal.columns) == inputs_of(columns.names)
    places = {}
    for start, line, cells in _lines(path, number, after=known):
        found = dict(zip(journal.columns, cells, strict=True))
        # of other columns: other values
        digest = digest_of_cells(columns, cells, found[SENT]) if same else b""
        places[key_of(found[ID].decode())] = Place(number, start, len(line), digest)
    ids.add(places, segment=number, upto=journal.end)


def _lines(path: str, number: int, *, after: int = 0) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Where each line of a file begins, the line, and its cells."""
    journal = read_journal(path, number)
    for start, data in read_groups(path, number, journal, after=after):
        at = start
        for line, cells in text.records(data, journal.csv):
            yield at, line, cells
            at += len(line)


def remove_old(path: str, *, before: float, spared: Segment | None) -> None:
    """Removes the files whose last request was received before a time, in seconds since 1970."""
    for number in numbers(path):
        if spared is None or number != spared.number:
            last = read_journal(path, number).last
            if last and last < before:
                storage.delete(csv_path(path, number))
    complete_removals(path)


def complete_removals(path: str) -> None:
    """Removes the rest of files that are removed, also by a process that was killed meanwhile: their lines go first."""
    for number in numbers(path):
        if not os.path.exists(csv_path(path, number)):
            folders.remove(_images_of(path, number))
            storage.delete(journal_path(path, number))
