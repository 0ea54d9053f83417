"""Files of labels, read into the temporary table `labels` of the connection to a store, a row for each key."""

from __future__ import annotations

import collections
import csv
import itertools
import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from millrace.label.outputs import as_bytes, folder_name, label_columns
from millrace.store.layout import ID, RequestLayout, column_names, spelled_key
from schemas import interrupts, storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

_BATCH = 10_000
_EXAMPLES = 5  # labels that cannot be used, whose file and line are named
_TABLE = """
CREATE TEMP TABLE labels (
    key BLOB PRIMARY KEY,
    cells TEXT NOT NULL,                    -- the columns that are read, as a JSON list
    conflicts INTEGER NOT NULL DEFAULT 0,   -- whether another row has the key with other cells
    matched INTEGER NOT NULL DEFAULT 0      -- whether a stored request has the key
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO labels (key, cells) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET
conflicts = conflicts OR cells != excluded.cells
"""


def load_labels(
    database: sqlite3.Connection, paths: Sequence[str], schema: AnySchema, layout: RequestLayout
) -> tuple[str, collections.Counter[str], list[str]]:
    """Reads CSV files in UTF-8, with headers, into the table `labels`.

    Returns:
      The column of the keys: `_id`, or the schema's key if the first file has no `_id`; the counts `labels` and
      `invalid_labels`; and the file, line and reason of the first labels that cannot be used.

    Raises:
      UsageError: a file lacks a column, or is not a CSV file.
    """
    counts: collections.Counter[str] = collections.Counter()
    examples: list[str] = []
    names, key, delimiter = label_columns(schema, layout), "", ","
    if isinstance(schema, Schema):
        delimiter = schema.csv.delimiter
    csv.field_size_limit(sys.maxsize)
    database.execute(_TABLE)
    for path in paths:
        rows = _read_rows(path, delimiter)
        header = [name.strip() for name in next(rows, (0, []))[1]]
        if isinstance(schema, Schema) and names[0] not in header:  # it may be called as in the schema
            header = [names[0] if name == schema.label.name else name for name in header]
        key = key or _key_column(header, schema)
        if missing := [name for name in (key, *names) if name not in header]:
            raise UsageError(f"{path}: has no column {missing[0]!r}; its header is {', '.join(header)[:300]}")
        while batch := list(itertools.islice(rows, _BATCH)):
            interrupts.check()
            for line, row in batch:
                if len(row) != len(header):
                    raise UsageError(f"{path}: line {line} has {len(row)} cells, and the header {len(header)}")
            columns = dict(zip(header, zip(*(row for _, row in batch), strict=True), strict=True))
            cells = {name: [as_bytes(cell) for cell in columns[name]] for name in names}
            problems = _table_problems(cells, schema) if isinstance(schema, Schema) else _folder_problems(cells)
            keys = [cell.encode() if key == ID else spelled_key(as_bytes(cell)) for cell in columns[key]]
            values = map(json.dumps, zip(*(columns[name] for name in names), strict=True))
            labels = [label for i, label in enumerate(zip(keys, values, strict=True)) if i not in problems]
            database.execute("BEGIN")  # of a temporary table alone: it locks nothing of the store
            database.executemany(_ADD, labels)
            database.execute("COMMIT")
            counts.update(labels=len(batch), invalid_labels=len(problems))
            for i in sorted(problems)[: _EXAMPLES - len(examples)]:
                examples.append(f"{path}: line {batch[i][0]}: {problems[i]}")
    return key, counts, examples


def _read_rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with the number of its last line; first the header. Files may have commas instead, too."""
    with storage.wrap_errors(path), open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        delimiter = delimiter if delimiter in file.readline() else ","
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter)
        try:
            yield from ((reader.line_num, row) for row in reader if row)
        except csv.Error as error:
            raise UsageError(f"{path}: line {reader.line_num}: {error}") from None


def _key_column(header: Sequence[str], schema: AnySchema) -> str:
    if not isinstance(schema, Schema) or schema.key is None or ID in header:
        return ID
    return column_names(schema.key, schema)[0]


def _table_problems(cells: Mapping[str, Sequence[bytes]], schema: Schema) -> dict[int, str]:
    """Returns by row why preprocessing would reject what labels bring: the label, a weight, what the split is by."""
    arrays = {}
    for item in schema.items:
        names = column_names(item, schema) if item.raw is not None else [""]
        if cells.keys() >= set(names):
            arrays[item.name] = [pa.array(cells[name], pa.binary()) for name in names]
    problems = {row: f"{name}: {e.reason} ({e.detail})" for row, (name, e) in text.problems(arrays, schema).items()}
    for name, values in cells.items() if not schema.csv.quoted_newlines else ():
        for row in (row for row, value in enumerate(values) if b"\n" in value):
            problems.setdefault(row, f"{name}: holds a line end, and the schema has no csv: {{quoted_newlines: true}}")
    return problems


def _folder_problems(cells: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
    """Returns by row why the labels of images cannot be a class."""
    problems = {}
    for column, values in cells.items():
        for row, name in enumerate(map(folder_name, values)):
            if not name or "/" in name or "\0" in name or name.startswith("."):
                problems[row] = f"{column}: {name[:80]!r} cannot be the name of a folder, which is an image's class"
    return problems
