"""Which ids are stored already, and where: a SQLite file, which can be made again from the segments.

It is not written with each group: after a kill it may lack the last ones, and says up to where it is complete, so that
the rest is read from the segments.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas import storage
from schemas.errors import MillraceError

FILE = "ids.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS ids (id BLOB PRIMARY KEY, segment INTEGER, start INTEGER, size INTEGER, digest BLOB)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_segment ON ids (segment);
CREATE TABLE IF NOT EXISTS upto (segment INTEGER PRIMARY KEY, byte INTEGER);
"""
_AT_ONCE = 500
_LATE = 16_384  # ids and groups that wait, to be added in one transaction
_CACHE_KIB = 32 << 10
_PAGES = 16_000  # of the log, 64 MB, until it is written into the table: each time takes two flushes


class StoreError(MillraceError):
    """Requests could not be stored, and so are not answered."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a row is stored, and the digest of its raw values."""

    segment: int
    start: int
    size: int
    digest: bytes


def key_of(name: str) -> bytes:
    """The key of an id: of the same size, however long the id is."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def rows_of(database: sqlite3.Connection, query: str, keys: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query in which `{}` stands for some of the keys, as many as it takes at once."""
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        yield from database.execute(query.format(",".join("?" * len(some))), some)


class Ids:
    """The ids of one store. Used by one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._late: dict[bytes, Place] = {}  # on disk as rows, but not here yet
        self._ends: dict[int, int] = {}  # how far segments will be known when these are added
        self._waiting = 0
        try:
            self._open()
            self._database.execute("SELECT count(*) FROM upto").fetchone()
        except sqlite3.OperationalError as error:  # the disk is full, or fails
            raise StoreError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError:  # damaged: it is made again
            for end in ("", "-wal", "-shm"):
                storage.delete(self._path + end)
            self._open()

    def _open(self) -> None:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(self._path, check_same_thread=False)
        for setting in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            f"cache_size=-{_CACHE_KIB}",
            f"wal_autocheckpoint={_PAGES}",
        ):
            self._database.execute(f"PRAGMA {setting}")
        self._database.executescript(_TABLES)

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """The places of those that are stored."""
        query = "SELECT id, segment, start, size, digest FROM ids WHERE id IN ({})"
        found = {key: Place(*place) for key, *place in rows_of(self._database, query, keys)}
        return found | {key: self._late[key] for key in keys if key in self._late}

    def add(self, places: Mapping[bytes, Place], *, segment: int, upto: int) -> None:
        """Adds rows that are on disk. `upto`: how many bytes of their segment are then known here."""
        self._late |= places
        self._ends[segment] = upto
        self._waiting += 1 + len(places)
        if self._waiting >= _LATE:
            self.flush()

    def flush(self) -> None:
        """Adds what waits."""
        if not self._ends:
            return
        rows = [(key, *dataclasses.astuple(place)) for key, place in self._late.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?, ?, ?, ?)", rows)
                self._database.executemany("INSERT OR REPLACE INTO upto VALUES (?, ?)", list(self._ends.items()))
        except sqlite3.OperationalError:  # a full disk: they are added with the next ones
            return
        self._late.clear()
        self._ends.clear()
        self._waiting = 0

    def upto(self, segment: int) -> int:
        """How many bytes of a segment are known here."""
        row = self._database.execute("SELECT byte FROM upto WHERE segment = ?", (segment,)).fetchone()
        return row[0] if row else 0

    def cut(self, segment: int, end: int) -> None:
        """Forgets the ids of a segment that are behind its end: the disk has lost what it said to have."""
        with self._database:
            self._database.execute("DELETE FROM ids WHERE segment = ? AND start >= ?", (segment, end))
            self._database.execute("UPDATE upto SET byte = ? WHERE segment = ?", (end, segment))

    def forget_all_but(self, segments: Sequence[int]) -> None:
        """Removes the ids of segments that are gone."""
        self.flush()
        known = {row[0] for row in self._database.execute("SELECT segment FROM upto")}
        with self._database:
            for segment in known - set(segments):
                self._database.execute("DELETE FROM ids WHERE segment = ?", (segment,))
                self._database.execute("DELETE FROM upto WHERE segment = ?", (segment,))

    def close(self) -> None:
        self.flush()
        self._database.close()
