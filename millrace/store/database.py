"""The folder of a store: a SQLite file of requests and images, and locks.

SQLite appends each group of requests to its log and flushes it before the answers leave (WAL, `synchronous=FULL`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders

FILE, LOCK, LABEL_LOCK = "requests.sqlite", ".lock", ".label-lock"
VERSION = 1
_MOST_IDS = 30_000  # in one query; SQLite takes 32,766 values
_BUSY_SECONDS = 30.0  # `millrace label` writes for moments only
_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "gluster", "lustre", "afs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs")
_TABLES = """
CREATE TABLE served (form TEXT NOT NULL, yaml BLOB NOT NULL);  -- one row: the form of all lines, the last schema
CREATE TABLE outputs (number INTEGER PRIMARY KEY, path TEXT, finished INTEGER NOT NULL DEFAULT 0);
CREATE TABLE images (name TEXT UNIQUE NOT NULL, received REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    given INTEGER NOT NULL,         -- whether the client gave the id, and so may repeat the request
    line BLOB NOT NULL,             -- the raw values as a line of CSV; empty if the row could not be read
    sent BLOB,                      -- then the row as JSON
    prediction BLOB NOT NULL,
    probabilities BLOB NOT NULL,
    error BLOB NOT NULL,
    model TEXT NOT NULL,
    received REAL NOT NULL,
    answered REAL NOT NULL,
    label TEXT,                     -- JSON, with the other columns that came with the label
    output INTEGER                  -- the output that the labelled row was handed to
);
CREATE UNIQUE INDEX by_id ON requests (id) WHERE given = 1;
CREATE INDEX by_output ON requests (output) WHERE output IS NOT NULL;
"""


class StoredRow(NamedTuple):
    """A row as it is stored; see the table `requests`."""

    id: str
    given: bool
    line: bytes
    sent: bytes | None
    prediction: bytes
    probabilities: bytes
    error: bytes
    model: str
    received: float
    answered: float


_COLUMNS = ", ".join(StoredRow._fields)
_INSERT = f"INSERT INTO requests ({_COLUMNS}) VALUES ({', '.join('?' * len(StoredRow._fields))})"  # noqa: S608 - of this module


class StoreError(MillraceError):
    """Requests could not be stored, and so are not answered."""


@contextlib.contextmanager
def store_errors(path: str, consequence: str = "the requests were not stored") -> Iterator[None]:
    """Turns errors of the disk and of SQLite into a StoreError that names the store."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{path}: {reason}; {consequence}") from error


def lock(path: str) -> int:
    """Creates the folder, for this user alone, and locks it for one server. The system frees the lock at its end.

    Raises:
      UsageError: another process has the lock, the folder holds something else, or it is on a network file system.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--store {path}: is not a folder")
    with store_errors(path):
        folders.make(path)
        for name in storage.listdir(path):
            if name not in (LOCK, LABEL_LOCK) and not name.startswith(FILE):
                raise UsageError(f"--store {path}: holds {name!r}, which is no part of a store; give another folder")
        kind = file_system(path)
        if kind.startswith(_NETWORK):
            raise UsageError(f"--store {path}: is on {kind}, where SQLite cannot keep its promises; use a local disk")
        os.chmod(path, 0o700)
        handle = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        if storage.lock(handle, wait=False):
            return handle
        os.close(handle)
        raise UsageError(f"--store {path}: another server writes there; give each its own folder")


def file_system(path: str) -> str:
    """The kind of file system that a path is on, such as ext4 or nfs4; empty where the system does not tell."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    path = os.path.join(os.path.realpath(path), "")
    below = [(len(point), kind) for point, kind in mounts if path.startswith(os.path.join(point, ""))]
    return max(below, default=(0, ""))[1]


def connect(folder: str, *, create: bool = False) -> sqlite3.Connection:
    """Opens the requests of a store.

    Args:
      folder: the store's folder.
      create: create the file if it does not exist.

    Raises:
      UsageError: there is no store in the folder, or it is of another version.
      sqlite3.Error: the file cannot be read.
    """
    path = os.path.join(folder, FILE)
    if not create and not os.path.isfile(path):
        raise UsageError(f"{folder}: holds no requests; give the --store of a server")
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    database.row_factory = sqlite3.Row
    try:
        for setting in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32768", "wal_autocheckpoint=4000"):
            database.execute(f"PRAGMA {setting}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0 and create:
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={VERSION}; COMMIT;")
        elif version != VERSION:
            raise UsageError(f"{path}: is of version {version}, and this release reads version {VERSION}")
    except BaseException:
        database.close()
        raise
    return database


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing of what is written in the `with` block, flushed to disk at its end."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself, as after a full disk
            database.execute("ROLLBACK")
        raise


def set_served(database: sqlite3.Connection, folder: str, form: str, yaml: bytes) -> None:
    """Notes the schema that is served from now on.

    Args:
      database: the store's requests.
      folder: its folder.
      form: columns, delimiter and missing tokens of the stored lines.
      yaml: the schema's file.

    Raises:
      UsageError: the store has lines of another form.
    """
    if [tuple(row) for row in database.execute("SELECT form, yaml FROM served")] == [(form, yaml)]:
        return  # so that a server starts on a disk that is full, too
    with transaction(database):
        (other,) = database.execute("SELECT count(*) FROM served WHERE form != ?", (form,)).fetchone()
        if other:
            raise UsageError(
                f"--store {folder}: holds requests of a schema with other columns, another delimiter or other missing "
                "tokens; give each schema a --store of its own"
            )
        database.execute("DELETE FROM served")
        database.execute("INSERT INTO served VALUES (?, ?)", (form, yaml))


def requests_by_id(database: sqlite3.Connection, ids: Sequence[str]) -> dict[str, StoredRow]:
    """The stored requests that clients gave these ids."""
    stored: dict[str, StoredRow] = {}
    for start in range(0, len(ids), _MOST_IDS):
        part = ids[start : start + _MOST_IDS]
        marks = ",".join("?" * len(part))
        query = f"SELECT {_COLUMNS} FROM requests WHERE given = 1 AND id IN ({marks})"  # noqa: S608 - question marks
        stored |= {row["id"]: StoredRow(*row) for row in database.execute(query, part)}
    return stored


def insert(database: sqlite3.Connection, rows: Sequence[StoredRow], images: Mapping[str, tuple[float, bytes]]) -> None:
    """Stores rows, and images by name with the time of their request, in one transaction."""
    with transaction(database):
        database.executemany(_INSERT, rows)
        database.executemany(
            "INSERT INTO images VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET received = excluded.received",
            [(name, received, data) for name, (received, data) in images.items()],
        )


def remove_old(database: sqlite3.Connection, before: float, rows: int = 5000) -> None:
    """Removes the requests, and the images, that arrived before a time in seconds since 1970.

    A transaction removes at most `rows`: while it lasts, nothing else can be stored.
    """
    for table in ("requests", "images"):
        query = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE received < ? LIMIT ?)"  # noqa: S608 - of this function
        removed = rows
        while removed == rows:
            with transaction(database):
                removed = database.execute(query, (before, rows)).rowcount
