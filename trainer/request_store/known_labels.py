"""Labels by key, from CSV files of any size: in a temporary SQLite file, with what contradicts itself marked."""

from __future__ import annotations

import csv
import dataclasses
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence

from schemas import storage
from schemas.errors import UsageError

_AT_ONCE = 500
_BATCH = 10_000


@dataclasses.dataclass(frozen=True)
class Label:
    """What is known of a key: a value of each column that was asked for; `conflict`: several, which differ."""

    values: tuple[bytes, ...]
    conflict: bool


class KnownLabels:
    """Labels by key.

    Args:
      paths: CSV files in UTF-8, with headers.
      on: the column of the key.
      columns: the columns that are read.
      optional: columns that are read if a file has them.
      delimiter: between cells.

    Attributes:
      rows: how many were read.
      duplicates: how many said again what was known.
      conflicts: keys whose rows differ.
      lacking: the optional columns that no file has.

    Raises:
      UsageError: a file lacks a column, or is no CSV file.
    """

    def __init__(
        self, paths: Sequence[str], on: str, columns: Sequence[str], optional: Sequence[str] = (), delimiter: str = ","
    ) -> None:
        self.rows = self.duplicates = 0
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-label-")
        self._database = sqlite3.connect(os.path.join(self._folder.name, "labels.sqlite"), isolation_level=None)
        for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE raw (key BLOB, value BLOB)")
        self._columns = (*columns, *optional)
        self.lacking = set(optional)
        csv.field_size_limit(sys.maxsize)
        try:
            for path in paths:
                self._read(path, on, columns, delimiter)
        except BaseException:
            self.close()
            raise
        self._database.execute(
            "CREATE TABLE labels AS SELECT key, min(value) AS value, count(DISTINCT value) AS kinds, count(*) AS rows "
            "FROM raw GROUP BY key"
        )
        self._database.execute("CREATE UNIQUE INDEX by_key ON labels (key)")
        again, self.conflicts, self.keys = self._database.execute(
            "SELECT total(rows - kinds), total(kinds > 1), count(*) FROM labels"
        ).fetchone()
        self.duplicates, self.conflicts = int(again), int(self.conflicts)

    def _read(self, path: str, on: str, columns: Sequence[str], delimiter: str) -> None:
        with (
            storage.wrap_errors(path),
            open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
        ):
            rows = csv.reader(file, delimiter=delimiter)
            try:
                header = [name.strip() for name in next(rows, [])]
                for name in (on, *columns):
                    if name not in header:
                        raise UsageError(f"{path}: has no column {name!r}; its header is {', '.join(header)[:300]}")
                self.lacking -= set(header)
                places = [header.index(name) if name in header else -1 for name in self._columns]
                batch: list[tuple[bytes, bytes]] = []
                for row in self._whole(path, rows, len(header)):
                    values = [_bytes(row[place]) if place >= 0 else b"" for place in places]
                    batch.append((_bytes(row[header.index(on)]).strip(), _packed(values)))
                    if len(batch) >= _BATCH:
                        self._database.executemany("INSERT INTO raw VALUES (?, ?)", batch)
                        batch.clear()
                self._database.executemany("INSERT INTO raw VALUES (?, ?)", batch)
            except csv.Error as error:
                raise UsageError(f"{path}: line {rows.line_num}: {error}") from None

    def _whole(self, path: str, rows: Iterator[list[str]], width: int) -> Iterator[list[str]]:
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            if len(row) != width:
                raise UsageError(f"{path}: row {number} has {len(row)} cells, and the header {width}")
            self.rows += 1
            yield row

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Label]:
        """What is known of some keys."""
        found = {}
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            asked = ",".join("?" * len(some))
            query = f"SELECT key, value, kinds FROM labels WHERE key IN ({asked})"  # noqa: S608
            for key, value, kinds in self._database.execute(query, some):
                found[key] = Label(_unpacked(value), kinds > 1)
        return found

    def mark(self, keys: Sequence[bytes]) -> None:
        """Notes that stored rows have these keys."""
        self._database.execute("CREATE TABLE IF NOT EXISTS used (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.executemany("INSERT OR IGNORE INTO used VALUES (?)", [(key,) for key in set(keys)])

    def unused(self) -> int:
        """How many keys no stored row has."""
        self.mark(())
        return int(self.keys) - int(self._database.execute("SELECT count(*) FROM used").fetchone()[0])

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()


def _bytes(cell: str) -> bytes:
    return cell.encode("utf-8", "surrogateescape")


def _packed(values: Sequence[bytes]) -> bytes:
    return b"".join(b"%d:" % len(value) + value for value in values)


def _unpacked(data: bytes) -> tuple[bytes, ...]:
    values, start = [], 0
    while start < len(data):
        colon = data.index(b":", start)
        end = colon + 1 + int(data[start:colon])
        values.append(data[colon + 1 : end])
        start = end
    return tuple(values)
