"""The folder of a store: a SQLite file of requests, image files by the day of their request, and a lock.

SQLite appends each group of requests to its log and flushes it before the answers leave (WAL, `synchronous=FULL`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders

FILE, LOCK, LABEL_LOCK, IMAGES = "requests.sqlite", ".lock", ".label-lock", "images"
VERSION = 1
IDS_AT_ONCE = 500
_BUSY_SECONDS = 30.0  # `millrace label` writes for moments only
_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "gluster", "lustre", "afs", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs")
_IMAGE_KINDS = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"))
_TABLES = """
CREATE TABLE layouts (number INTEGER PRIMARY KEY, names TEXT, fingerprint TEXT, yaml BLOB, UNIQUE (fingerprint));
CREATE TABLE outputs (number INTEGER PRIMARY KEY, path TEXT, lacking TEXT, finished INTEGER NOT NULL DEFAULT 0);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    given INTEGER NOT NULL,         -- whether the client gave the id, and so may repeat the request
    layout INTEGER NOT NULL,
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
        if not os.path.isdir(path):
            folders.make(os.path.dirname(os.path.abspath(path)))
            os.mkdir(path, 0o700)
        for name in storage.listdir(path):
            if name not in (LOCK, LABEL_LOCK, IMAGES) and not name.startswith(FILE):
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


def requests_by_id(database: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The stored requests that clients gave these ids."""
    stored: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        part = ids[start : start + IDS_AT_ONCE]
        marks = ",".join("?" * len(part))
        query = f"SELECT * FROM requests JOIN layouts ON layout = layouts.number WHERE given = 1 AND id IN ({marks})"  # noqa: S608 - question marks
        stored |= {row["id"]: dict(row) for row in database.execute(query, part)}
    return stored


def write_images(store: str, images: Mapping[str, np.ndarray], received: Sequence[float]) -> dict[str, list[bytes]]:
    """Writes image files, and flushes them to disk.

    Args:
      store: the store's folder.
      images: the files' bytes by input, `[rows]`.
      received: when each row's request arrived.

    Returns:
      By input, each file's name, in the folder of the day of its request (`image_path`); empty where there is none.

    Raises:
      OSError: they cannot be written.
    """
    names: dict[str, list[bytes]] = {name: [] for name in images}
    new_folders = set()
    for name, files in images.items():
        for data, seconds in zip(files, received, strict=True):
            if not data:
                names[name].append(b"")
                continue
            suffix = next((suffix for magic, suffix in _IMAGE_KINDS if data.startswith(magic)), ".bin")
            file_name = f"{hashlib.sha256(data).hexdigest()[:32]}{suffix}"
            path = image_path(store, file_name, seconds)
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                with open(os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(f"{path}.tmp", path)
                new_folders.add(os.path.dirname(path))
            names[name].append(file_name.encode())
    for folder in new_folders:
        for each in (folder, os.path.dirname(folder), store):
            storage.sync_folder(each)
    return names


def image_path(store: str, name: str, received: float) -> str:
    """The path of an image, by its name and the time of its request."""
    return os.path.join(store, IMAGES, day(received), os.path.basename(name))


def day(seconds: float) -> str:
    """The day of a time since 1970, in UTC.

    >>> day(1.8e9)
    '2027-01-15'
    """
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d")


def remove_old(database: sqlite3.Connection, store: str, before: float, rows: int = 5000) -> None:
    """Removes the requests that arrived before a day began, a few at a time, and then the images of such days.

    Args:
      database: the store's requests.
      store: its folder.
      before: a time in seconds since 1970; requests of its day stay.
      rows: how many are removed in one transaction, for which nothing else can be stored.
    """
    midnight = before - before % 86_400.0
    query = "DELETE FROM requests WHERE number IN (SELECT number FROM requests WHERE received < ? LIMIT ?)"
    while True:
        with transaction(database):
            removed = database.execute(query, (midnight, rows)).rowcount
        if removed < rows:
            break
    for name in storage.listdir(os.path.join(store, IMAGES)):
        if name < day(midnight):
            folders.remove(os.path.join(store, IMAGES, name))


def layout_number(database: sqlite3.Connection, names: str, fingerprint: str, yaml: bytes) -> int:
    """The number of a layout, which is added if it is new."""
    with transaction(database):
        database.execute(
            "INSERT INTO layouts (names, fingerprint, yaml) VALUES (?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING",
            (names, fingerprint, yaml),
        )
    (number,) = database.execute("SELECT number FROM layouts WHERE fingerprint = ?", (fingerprint,)).fetchone()
    return int(number)


def insert(database: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Stores rows, as `millrace.store.rows.table_rows` gives them, in a transaction of the caller's."""
    database.executemany(
        "INSERT INTO requests (id, given, layout, line, sent, prediction, probabilities, error, model, received, "
        "answered) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
