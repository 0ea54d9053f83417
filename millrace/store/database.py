"""The folder of a store: one SQLite file of requests and images.

SQLite appends each group of requests to its log and flushes it before the answers leave (WAL, `synchronous=FULL`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders

FILE, LABELLING = "requests.sqlite", ".labelling"  # `millrace label` locks the second, an empty folder
VERSION = 1
_BUSY_SECONDS = 30.0  # `millrace label` holds the write lock for moments only
_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "gluster", "lustre", "afs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs")
_TABLES = """
CREATE TABLE served (
    row INTEGER PRIMARY KEY,        -- 1: there is one row
    form TEXT NOT NULL,             -- of all lines
    yaml BLOB NOT NULL              -- the last schema
);
CREATE TABLE outputs (
    number INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    last INTEGER NOT NULL,          -- later requests are not handed to this output
    finished INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE images (name TEXT UNIQUE NOT NULL, received REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    from_client INTEGER NOT NULL,   -- whether the client chose the id, and so may repeat the request
    key BLOB,                       -- the schema's key as preprocessing spells it
    line BLOB NOT NULL,             -- the raw values as a line of CSV; empty if the row could not be read
    sent BLOB,                      -- then the row as JSON
    answer BLOB NOT NULL,           -- the model's outputs as JSON
    error BLOB NOT NULL,            -- why there is no prediction; empty if there is one
    model TEXT NOT NULL,
    received REAL NOT NULL,
    answered REAL NOT NULL,
    label TEXT,                     -- JSON, with the other columns that came with the label
    output INTEGER                  -- the output that the labelled row was handed to
);
CREATE UNIQUE INDEX by_id ON requests (id) WHERE from_client = 1;
CREATE INDEX by_output ON requests (output) WHERE output IS NOT NULL;
"""


class StoredRequest(NamedTuple):
    """A row of the table `requests`, as a server stores it."""

    id: str
    from_client: bool
    key: bytes | None
    line: bytes
    sent: bytes | None
    answer: bytes
    error: bytes
    model: str
    received: float
    answered: float


_COLUMNS = ", ".join(StoredRequest._fields)
_INSERT = f"INSERT INTO requests ({_COLUMNS}) VALUES ({', '.join('?' * len(StoredRequest._fields))})"  # noqa: S608 - of this module
_BY_ID = f"SELECT {_COLUMNS} FROM requests WHERE from_client = 1 AND id IN (SELECT value FROM json_each(?))"  # noqa: S608 - of this module


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


@contextlib.contextmanager
def server_folder(path: str) -> Iterator[None]:
    """Creates the folder of a store, for this user alone, and locks it for one server in the `with` block.

    Raises:
      UsageError: another server has it, it holds something else, or it is on a network file system.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--store {path}: is not a folder")
    folders.make(path)
    for name in storage.listdir(path):
        if name != LABELLING and not name.startswith(FILE):
            raise UsageError(f"--store {path}: holds {name!r}, which is no part of a store; give another folder")
    kind = file_system(path)
    if kind.startswith(_NETWORK):
        raise UsageError(f"--store {path}: is on {kind}, where SQLite cannot keep its promises; use a local disk")
    os.chmod(path, 0o700)
    with folders.locked(path) as is_free:
        if not is_free:
            raise UsageError(f"--store {path}: another server writes there; give each its own folder")
        yield


def file_system(path: str) -> str:
    """Returns the kind of file system that a path is on, such as ext4 or nfs4; empty where the system does not tell."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    path = os.path.join(os.path.realpath(path), "")
    above = [(len(point), kind) for point, kind in mounts if path.startswith(os.path.join(point, ""))]
    return max(above, default=(0, ""))[1]


def connect(folder: str, *, create: bool = False) -> sqlite3.Connection:
    """Opens the SQLite file of a store.

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
    with contextlib.ExitStack() as unless_good:
        database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        unless_good.callback(database.close)
        database.row_factory = sqlite3.Row
        for setting in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32768", "wal_autocheckpoint=4000"):
            database.execute(f"PRAGMA {setting}")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0 and create:
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={VERSION}; COMMIT;")
        elif version != VERSION:
            raise UsageError(f"{path}: is of version {version}, and this release reads version {VERSION}")
        unless_good.pop_all()
    return database


def set_served(database: sqlite3.Connection, folder: str, form: str, yaml: bytes) -> None:
    """Notes the schema that is served from now on: the form of its lines, and its file.

    Raises:
      UsageError: the store has lines of another form.
    """
    served = database.execute("SELECT form, yaml FROM served").fetchone()
    if served is not None and served["form"] != form:
        raise UsageError(
            f"--store {folder}: holds requests of a schema with other columns, another delimiter or other missing "
            "tokens; give each schema a --store of its own"
        )
    if served is None or served["yaml"] != yaml:  # a server starts on a full disk with the schema that it served
        database.execute("INSERT OR REPLACE INTO served VALUES (1, ?, ?)", (form, yaml))


def requests_by_id(database: sqlite3.Connection, ids: Sequence[str]) -> dict[str, StoredRequest]:
    """Returns the stored requests whose clients chose these ids."""
    rows = database.execute(_BY_ID, (json.dumps(ids),)) if ids else ()
    return {row["id"]: StoredRequest(*row) for row in rows}


def insert(
    database: sqlite3.Connection, rows: Sequence[StoredRequest], images: Mapping[str, tuple[float, bytes]]
) -> None:
    """Stores rows, and images by name with the time of their request, in one transaction."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.executemany(_INSERT, rows)
        database.executemany(
            "INSERT INTO images VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET received = excluded.received",
            [(name, received, data) for name, (received, data) in images.items()],
        )


def remove_old(database: sqlite3.Connection, before: float, rows: int = 5000) -> None:
    """Removes the requests and images that arrived before a time in seconds since 1970, some thousand in a commit."""
    for table in ("requests", "images"):
        query = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE received < ? LIMIT ?)"  # noqa: S608 - of this function
        while database.execute(query, (before, rows)).rowcount == rows:
            pass
