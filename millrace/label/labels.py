"""Labels by key, from CSV files of any size, in a temporary SQLite file."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from millrace.store.database import IDS_AT_ONCE
from millrace.store.rows import ID
from schemas import interrupts, storage
from schemas.errors import UsageError
from schemas.spec.words import canonical

_BATCH = 10_000
EXAMPLES = 5  # labels that cannot be used, whose file and row are named
CONFLICT = ""  # in the place of a label whose key has several that differ

# Why rows of labels cannot be used, by row, given the cells of their columns by name.
Check = Callable[[Mapping[str, Sequence[bytes]]], Mapping[int, str]]


class Labels:
    """Labels by key.

    Args:
      paths: CSV files in UTF-8, with headers.
      key: the column of the key.
      label: the names that the label's column may have.
      required: the other columns that are read.
      optional: columns that are read if a file has them.
      delimiter: between cells, in files whose header has it; a comma in others.
      check: why rows cannot be used; the label's column has the first of its names.

    Attributes:
      rows: how many rows were read.
      invalid: how many of them cannot be used.
      examples: the file, the row and the reason of the first of these.
      duplicates: how many repeat what was known.
      conflicts: how many keys have labels that differ.
      lacking: the optional columns that no file has.

    Raises:
      UsageError: a file lacks a column, or is not a CSV file.
    """

    def __init__(
        self,
        paths: Sequence[str],
        key: str,
        label: Sequence[str],
        required: Sequence[str],
        optional: Sequence[str],
        *,
        delimiter: str,
        check: Check,
    ) -> None:
        self.rows = self.invalid = 0
        self.examples: list[str] = []
        self.lacking = set(optional)
        self._key, self._label, self._required, self._delimiter = key, label, required, delimiter
        self._columns = (label[0], *required, *optional)
        self._check = check
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-label-")
        self._database = sqlite3.connect(os.path.join(self._folder.name, "labels.sqlite"), isolation_level=None)
        self._database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;")
        self._database.execute("CREATE TABLE raw (key BLOB, value TEXT)")
        csv.field_size_limit(sys.maxsize)
        try:
            for path in paths:
                self._read(path)
        except BaseException:
            self.close()
            raise
        self._database.executescript(
            "CREATE TABLE labels (key BLOB PRIMARY KEY, value TEXT, kinds INTEGER, rows INTEGER, used INTEGER) "
            "WITHOUT ROWID; "
            "INSERT INTO labels SELECT key, min(value), count(DISTINCT value), count(*), 0 FROM raw GROUP BY key;"
        )
        self.duplicates, self.conflicts = map(
            int, self._database.execute("SELECT total(rows - kinds), total(kinds > 1) FROM labels").fetchone()
        )

    def find(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """The labels of some keys, as JSON lists of the columns read; `CONFLICT` where they differ. Notes their use."""
        labels = {}
        for start in range(0, len(keys), IDS_AT_ONCE):
            part = keys[start : start + IDS_AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"UPDATE labels SET used = 1 WHERE key IN ({marks}) RETURNING key, value, kinds"  # noqa: S608 - question marks
            for key, value, kinds in self._database.execute(query, part):
                labels[key] = CONFLICT if kinds > 1 else value
        return labels

    def unused(self) -> int:
        """How many keys no stored row has."""
        return int(self._database.execute("SELECT count(*) FROM labels WHERE used = 0").fetchone()[0])

    def close(self) -> None:
        """Removes the temporary file."""
        self._database.close()
        self._folder.cleanup()

    def _read(self, path: str) -> None:
        with (
            storage.wrap_errors(path),
            open(path, "rb") as data,
            io.TextIOWrapper(data, encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
        ):
            delimiter = self._delimiter if self._delimiter in file.readline() else ","
            file.seek(0)
            rows = csv.reader(file, delimiter=delimiter)
            try:
                header = [name.strip() for name in next(rows, [])]
                label = next((name for name in self._label if name in header), self._label[0])
                for name in (self._key, label, *self._required):
                    if name not in header:
                        raise UsageError(f"{path}: has no column {name!r}; its header is {', '.join(header)[:300]}")
                self.lacking -= set(header)
                places = {name: header.index(name) for name in self._columns[1:] if name in header}
                places = {self._columns[0]: header.index(label), **places}
                complete = _complete_rows(path, rows, len(header))
                while batch := list(itertools.islice(complete, _BATCH)):
                    interrupts.check()
                    self._add(path, batch, header.index(self._key), places)
            except csv.Error as error:
                raise UsageError(f"{path}: line {rows.line_num}: {error}") from None

    def _add(self, path: str, batch: Sequence[tuple[int, list[str]]], key: int, places: Mapping[str, int]) -> None:
        columns = {name: [as_bytes(row[place]) for _, row in batch] for name, place in places.items()}
        reasons = self._check(columns)
        order = [places.get(name) for name in self._columns]
        pairs = [
            (
                spelled(self._key, as_bytes(row[key]).strip()),
                json.dumps(["" if place is None else row[place] for place in order]),
            )
            for i, (_, row) in enumerate(batch)
            if i not in reasons
        ]
        self._database.executemany("INSERT INTO raw VALUES (?, ?)", pairs)
        self.rows += len(batch)
        self.invalid += len(reasons)
        for i in sorted(reasons)[: EXAMPLES - len(self.examples)]:
            self.examples.append(f"{path}: row {batch[i][0]}: {reasons[i]}")


def spelled(column: str, key: bytes) -> bytes:
    """A key as the job's reader spells it, so that 7.0 is 7; the id of a request as it is."""
    return key if column == ID else as_bytes(canonical(key.decode("utf-8", "surrogateescape")))


def _complete_rows(path: str, rows: Iterator[list[str]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with its number, from 1."""
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) != width:
            raise UsageError(f"{path}: row {number} has {len(row)} cells, and the header {width}")
        yield number, row


def as_bytes(cell: str) -> bytes:
    """A cell's bytes, those that are not UTF-8 included."""
    return cell.encode("utf-8", "surrogateescape")
