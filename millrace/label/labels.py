"""Files of labels, read into a temporary table `labels` of the connection to a store, with a row for each key."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import itertools
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from millrace.store.rows import ID
from schemas import interrupts, storage
from schemas.errors import UsageError
from schemas.spec.words import canonical

_BATCH = 10_000
_EXAMPLES = 5  # labels that cannot be used, whose file and row are named
_TABLE = """
CREATE TEMP TABLE labels (
    key BLOB PRIMARY KEY,
    cells TEXT NOT NULL,                -- the columns that are read, as a JSON list
    copies INTEGER NOT NULL DEFAULT 0,  -- further rows with these cells
    conflicts INTEGER NOT NULL DEFAULT 0,
    matched INTEGER NOT NULL DEFAULT 0  -- whether a stored row has the key
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO labels (key, cells) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET
copies = copies + (cells = excluded.cells), conflicts = conflicts + (cells != excluded.cells)
"""

# Why rows of labels cannot be used, by row, given the cells of their columns by name.
Check = Callable[[Mapping[str, Sequence[bytes]]], Mapping[int, str]]


@dataclasses.dataclass(frozen=True)
class LabelColumns:
    """The columns that are read of files of labels.

    Attributes:
      key: the column of the key.
      label: the names that the label's column may have; it is checked under the first.
      more: the other columns.
      delimiter: between cells, in files whose header has it; a comma in others.
      check: why rows cannot be used.
    """

    key: str
    label: Sequence[str]
    more: Sequence[str]
    delimiter: str
    check: Check


def load_labels(
    database: sqlite3.Connection, paths: Sequence[str], columns: LabelColumns
) -> tuple[collections.Counter[str], list[str]]:
    """Reads CSV files in UTF-8, with headers, into the temporary table `labels`.

    Returns:
      The counts of labels (see `millrace.label.joining.Joined`), and the file, row and reason of the first that cannot
      be used.

    Raises:
      UsageError: a file lacks a column, or is not a CSV file.
    """
    counts: collections.Counter[str] = collections.Counter()
    examples: list[str] = []
    csv.field_size_limit(sys.maxsize)
    database.execute(_TABLE)
    for path in paths:
        with open_labels(path, columns.delimiter) as (header, rows):
            label = next((name for name in columns.label if name in header), columns.label[0])
            for name in (columns.key, label, *columns.more):
                if name not in header:
                    raise UsageError(f"{path}: has no column {name!r}; its header is {', '.join(header)[:300]}")
            places = {columns.label[0]: header.index(label), **{name: header.index(name) for name in columns.more}}
            key_place = header.index(columns.key)
            complete = _complete_rows(path, rows, len(header))
            while batch := list(itertools.islice(complete, _BATCH)):
                interrupts.check()
                cells = {name: [as_bytes(row[place]) for _, row in batch] for name, place in places.items()}
                problems = columns.check(cells)
                usable = [row for i, (_, row) in enumerate(batch) if i not in problems]
                keys = [spelled(columns.key, as_bytes(row[key_place]).strip()) for row in usable]
                values = [json.dumps([row[place] for place in places.values()]) for row in usable]
                database.execute("BEGIN")  # of a temporary table alone: it locks nothing of the store
                database.executemany(_ADD, zip(keys, values, strict=True))
                database.execute("COMMIT")
                counts.update(labels=len(batch), invalid_labels=len(problems))
                for i in sorted(problems)[: _EXAMPLES - len(examples)]:
                    examples.append(f"{path}: row {batch[i][0]}: {problems[i]}")
    (copies, conflicts) = database.execute("SELECT total(copies), total(conflicts > 0) FROM labels").fetchone()
    counts.update(duplicate_labels=int(copies), conflicting_keys=int(conflicts))
    return counts, examples


def spelled(column: str, key: bytes) -> bytes:
    """A key as the job's reader spells it, so that 7.0 is 7; the id of a request as it is."""
    return key if column == ID else as_bytes(canonical(key.decode("utf-8", "surrogateescape")))


def as_bytes(cell: str) -> bytes:
    """A cell's bytes, those that are not UTF-8 included."""
    return cell.encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def open_labels(path: str, delimiter: str) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Opens a file of labels: the names in its header, and its rows."""
    with (
        storage.wrap_errors(path),
        open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        delimiter = delimiter if delimiter in file.readline() else ","
        file.seek(0)
        rows = csv.reader(file, delimiter=delimiter)
        try:
            yield [name.strip() for name in next(rows, [])], rows
        except csv.Error as error:
            raise UsageError(f"{path}: line {rows.line_num}: {error}") from None


def _complete_rows(path: str, rows: Iterator[list[str]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with its number, from 1."""
    for number, row in enumerate(rows, start=1):
        if row and len(row) != width:
            raise UsageError(f"{path}: row {number} has {len(row)} cells, and the header {width}")
        if row:
            yield number, row
