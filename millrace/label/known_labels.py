"""Labels by key, from CSV files of any size: in a temporary SQLite file, with what contradicts itself marked."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from millrace.store.columns import ID
from millrace.store.ids import rows_of
from schemas import interrupts, storage
from schemas.errors import UsageError
from schemas.spec.words import canonical
from schemas.storage.json_files import parse_json

_BATCH = 10_000
EXAMPLES = 5  # labels that cannot be used, of which the file and the row are told
NONE, KNOWN, CONFLICT = range(3)

Check = Callable[[Mapping[str, Sequence[bytes]]], Mapping[int, str]]
Progress = Callable[[int, int], None]  # is told of rows and bytes that were read


@dataclasses.dataclass(frozen=True)
class Found:
    """What is known of the keys of some rows.

    Attributes:
      state: int8 `[rows]`: `NONE`, `KNOWN`, or `CONFLICT` where labels differ.
      which: int64 `[rows]`: where in `values` a row's label is.
      values: the label, and the other columns that were asked for.
    """

    state: np.ndarray
    which: np.ndarray
    values: Sequence[tuple[bytes, ...]]


class KnownLabels:
    """Labels by key.

    Args:
      paths: CSV files in UTF-8, with headers.
      on: the column of the key.
      label: the names that the label's column may have.
      required: the other columns that are read.
      optional: columns that are read if a file has them.
      delimiter: between cells, in files whose header has it; a comma in others.
      check: why rows cannot be used, by row, given the cells of the columns that their file has; the label's by the
        first of its names.
      progress: is told of what is read.

    Attributes:
      rows: how many were read.
      invalid: how many could not be used.
      examples: the file, the row and the reason of the first of these.
      duplicates: how many said again what was known.
      conflicts: keys whose rows differ.
      lacking: the optional columns that no file has.

    Raises:
      UsageError: a file lacks a column, or is no CSV file.
    """

    def __init__(
        self,
        paths: Sequence[str],
        on: str,
        label: Sequence[str],
        required: Sequence[str] = (),
        optional: Sequence[str] = (),
        *,
        delimiter: str = ",",
        check: Check,
        progress: Progress,
    ) -> None:
        self.rows = self.invalid = 0
        self.examples: list[str] = []
        self.lacking = set(optional)
        self._on, self._label, self._required, self._delimiter = on, label, required, delimiter
        self._columns = (label[0], *required, *optional)
        self._check, self._progress = check, progress
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-label-")
        self._database = sqlite3.connect(os.path.join(self._folder.name, "labels.sqlite"), isolation_level=None)
        for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE raw (key BLOB, value TEXT)")
        csv.field_size_limit(sys.maxsize)
        try:
            for path in paths:
                self._read(path)
        except BaseException:
            self.close()
            raise
        self._database.execute(
            "CREATE TABLE labels AS SELECT key, min(value) AS value, count(DISTINCT value) AS kinds, count(*) AS rows "
            "FROM raw GROUP BY key"
        )
        self._database.execute("CREATE UNIQUE INDEX by_key ON labels (key)")
        again, conflicts, keys = self._database.execute(
            "SELECT total(rows - kinds), total(kinds > 1), count(*) FROM labels"
        ).fetchone()
        self.duplicates, self.conflicts = int(again), int(conflicts)
        self._used = bytearray(int(keys) + 1)  # by the table's rows, from 1

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
                for name in (self._on, label, *self._required):
                    if name not in header:
                        raise UsageError(f"{path}: has no column {name!r}; its header is {', '.join(header)[:300]}")
                self.lacking -= set(header)
                places = {name: header.index(name) for name in self._columns[1:] if name in header}
                places = {self._columns[0]: header.index(label), **places}
                whole, read = _whole(path, rows, len(header)), 0
                while batch := list(itertools.islice(whole, _BATCH)):
                    interrupts.check()
                    self._add(path, batch, header.index(self._on), places)
                    self._progress(len(batch), data.tell() - read)
                    read = data.tell()
            except csv.Error as error:
                raise UsageError(f"{path}: line {rows.line_num}: {error}") from None

    def _add(self, path: str, batch: Sequence[tuple[int, list[str]]], on: int, places: Mapping[str, int]) -> None:
        columns = {name: [_bytes(row[place]) for _, row in batch] for name, place in places.items()}
        wrong = self._check(columns)
        order = [places.get(name) for name in self._columns]
        pairs = [
            (
                self._spelled(_bytes(row[on]).strip()),
                json.dumps(["" if place is None else row[place] for place in order]),
            )
            for i, (_, row) in enumerate(batch)
            if i not in wrong
        ]
        self._database.executemany("INSERT INTO raw VALUES (?, ?)", pairs)
        self.rows += len(batch)
        self.invalid += len(wrong)
        for i in sorted(wrong)[: EXAMPLES - len(self.examples)]:
            self.examples.append(f"{path}: row {batch[i][0]}: {wrong[i]}")

    def _spelled(self, key: bytes) -> bytes:
        """A key as the job's reader spells it; the id of a request as it is."""
        return key if self._on == ID else _bytes(canonical(key.decode("utf-8", "surrogateescape")))

    def find(self, keys: pa.BinaryArray) -> Found:
        """What is known of the keys of some rows; notes that stored rows have them."""
        encoded = keys.dictionary_encode()
        distinct = list(map(self._spelled, encoded.dictionary.to_pylist()))
        places: dict[bytes, list[int]] = {}
        for place, key in enumerate(distinct):
            places.setdefault(key, []).append(place)
        state, which = np.full(len(distinct), NONE, np.int8), np.zeros(len(distinct), np.int64)
        values: list[tuple[bytes, ...]] = []
        query = "SELECT rowid, key, value, kinds FROM labels WHERE key IN ({})"
        for row, key, value, kinds in rows_of(self._database, query, list(places)):
            self._used[row] = 1
            state[places[key]], which[places[key]] = CONFLICT if kinds > 1 else KNOWN, len(values)
            values.append(tuple(map(_bytes, parse_json(value))))
        rows = encoded.indices.to_numpy()
        return Found(state[rows], which[rows], values)

    def unused(self) -> int:
        """How many keys no stored row has."""
        return len(self._used) - 1 - sum(self._used)

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()


def _whole(path: str, rows: Iterator[list[str]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Each row with its number, from 1."""
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) != width:
            raise UsageError(f"{path}: row {number} has {len(row)} cells, and the header {width}")
        yield number, row


def _bytes(cell: str) -> bytes:
    return cell.encode("utf-8", "surrogateescape")
