"""Files of labels, read into a temporary table `labels` of the connection to a store, with a row for each key.

`value` is the JSON list of the columns read, `kinds` the number of different ones, `lines` whether a cell has several.
"""

from __future__ import annotations

import csv
import dataclasses
import io
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
_ROWS = "CREATE TEMP TABLE label_rows (key BLOB, value TEXT, lines INTEGER)"
_LABELS = """
CREATE TEMP TABLE labels (key BLOB PRIMARY KEY, value TEXT, lines INTEGER, kinds INTEGER, rows INTEGER) WITHOUT ROWID;
INSERT INTO labels SELECT key, min(value), max(lines), count(DISTINCT value), count(*) FROM label_rows GROUP BY key;
DROP TABLE label_rows;
"""

# Why rows of labels cannot be used, by row, given the cells of their columns by name.
Check = Callable[[Mapping[str, Sequence[bytes]]], Mapping[int, str]]


@dataclasses.dataclass(frozen=True)
class LabelColumns:
    """What is read of files of labels.

    Attributes:
      key: the column of the key.
      label: the names that the label's column may have.
      required: the other columns that are read.
      optional: columns that are read if a file has them.
      delimiter: between cells, in files whose header has it; a comma in others.
      check: why rows cannot be used; the label's column has the first of its names.
    """

    key: str
    label: Sequence[str]
    required: Sequence[str]
    optional: Sequence[str]
    delimiter: str
    check: Check


@dataclasses.dataclass
class Joined:
    """What came of a run.

    Attributes:
      file: the new rows; None: there are none.
      stored: rows in the store.
      written: rows that received their label in this run.
      before: rows that have received it in earlier runs.
      unlabelled: rows whose key has no label.
      not_predicted: rows with a label that were given no prediction; preprocessing would reject them.
      contradicted: rows that have received another label than the one they would receive now.
      conflicting: rows whose key has labels that differ; they wait until it has one.
      not_writable: rows with a line end in a value, which the schema's files cannot have.
      unmatched_labels: keys of labels that no stored row has.
      labels, duplicate_labels: rows of labels; those that repeat another one.
      conflicting_keys: keys whose labels differ.
      invalid_labels: rows of labels that cannot be used; they count as if they were not there.
      examples: the file, the row and the reason of the first of these.
    """

    file: str | None = None
    stored: int = 0
    written: int = 0
    before: int = 0
    unlabelled: int = 0
    not_predicted: int = 0
    contradicted: int = 0
    conflicting: int = 0
    not_writable: int = 0
    labels: int = 0
    duplicate_labels: int = 0
    conflicting_keys: int = 0
    unmatched_labels: int = 0
    invalid_labels: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)


def load_labels(database: sqlite3.Connection, paths: Sequence[str], columns: LabelColumns) -> tuple[Joined, set[str]]:
    """Reads CSV files in UTF-8, with headers, into the temporary table `labels`.

    Returns:
      The counts of labels, and the optional columns that no file has.

    Raises:
      UsageError: a file lacks a column, or is not a CSV file.
    """
    counts, lacking = Joined(), set(columns.optional)
    csv.field_size_limit(sys.maxsize)
    database.execute(_ROWS)
    for path in paths:
        lacking -= _load_file(database, path, columns, counts)
    database.executescript(_LABELS)
    query = "SELECT total(rows - kinds), total(kinds > 1) FROM labels"
    counts.duplicate_labels, counts.conflicting_keys = map(int, database.execute(query).fetchone())
    return counts, lacking


def spelled(column: str, key: bytes) -> bytes:
    """A key as the job's reader spells it, so that 7.0 is 7; the id of a request as it is."""
    return key if column == ID else as_bytes(canonical(key.decode("utf-8", "surrogateescape")))


def as_bytes(cell: str) -> bytes:
    """A cell's bytes, those that are not UTF-8 included."""
    return cell.encode("utf-8", "surrogateescape")


def _load_file(database: sqlite3.Connection, path: str, columns: LabelColumns, counts: Joined) -> set[str]:
    """Reads a file. Returns the names in its header."""
    with (
        storage.wrap_errors(path),
        open(path, "rb") as data,
        io.TextIOWrapper(data, encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        delimiter = columns.delimiter if columns.delimiter in file.readline() else ","
        file.seek(0)
        rows = csv.reader(file, delimiter=delimiter)
        try:
            header = [name.strip() for name in next(rows, [])]
            label = next((name for name in columns.label if name in header), columns.label[0])
            for name in (columns.key, label, *columns.required):
                if name not in header:
                    raise UsageError(f"{path}: has no column {name!r}; its header is {', '.join(header)[:300]}")
            names = {columns.label[0]: label, **{name: name for name in (*columns.required, *columns.optional)}}
            places = {name: header.index(own) if own in header else None for name, own in names.items()}
            complete = _complete_rows(path, rows, len(header))
            key_at = header.index(columns.key)
            while batch := list(itertools.islice(complete, _BATCH)):
                interrupts.check()
                keys = [spelled(columns.key, as_bytes(row[key_at]).strip()) for _, row in batch]
                cells = {name: [row[at] for _, row in batch] for name, at in places.items() if at is not None}
                reasons = columns.check({name: [as_bytes(cell) for cell in read] for name, read in cells.items()})
                values = list(zip(*(cells.get(name) or [""] * len(batch) for name in places), strict=True))
                _insert(database, [(keys[i], values[i]) for i in range(len(batch)) if i not in reasons])
                counts.labels += len(batch)
                counts.invalid_labels += len(reasons)
                for i in sorted(reasons)[: _EXAMPLES - len(counts.examples)]:
                    counts.examples.append(f"{path}: row {batch[i][0]}: {reasons[i]}")
        except csv.Error as error:
            raise UsageError(f"{path}: line {rows.line_num}: {error}") from None
    return set(header)


def _insert(database: sqlite3.Connection, rows: Sequence[tuple[bytes, tuple[str, ...]]]) -> None:
    database.execute("BEGIN")  # of a temporary table alone: it locks nothing of the store
    encoded = [(key, json.dumps(values), "\n" in "".join(values)) for key, values in rows]
    database.executemany("INSERT INTO label_rows VALUES (?, ?, ?)", encoded)
    database.execute("COMMIT")


def _complete_rows(path: str, rows: Iterator[list[str]], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with its number, from 1."""
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) != width:
            raise UsageError(f"{path}: row {number} has {len(row)} cells, and the header {width}")
        yield number, row
