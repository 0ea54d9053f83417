"""Joins labels to the requests of a store, and hands the labelled rows out, each once.

A short transaction assigns rows to an output, and they stay assigned. The output is written from its rows after that,
so a run that was killed is completed by the next one, with the same bytes. Rows are assigned some thousand at a time,
so that a server can store requests in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millrace.label.labels import Check, Joined, LabelColumns, load_labels, spelled
from millrace.label.outputs import file_layout, folder_name, place_images, write_file
from millrace.store.database import LABEL_LOCK, connect, store_errors, transaction
from millrace.store.rows import ID, Layout, column_names, layout_of
from schemas import interrupts, storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema, parse_schema
from schemas.spec.table import Schema
from schemas.storage.json_files import parse_json

_ROWS_AT_ONCE = 4000
_VERDICTS = """
CREATE TEMP TABLE verdicts AS
SELECT number, labels.value AS label, kinds = 1 AND labels.value != requests.label AS contradicts, CASE
    WHEN output IS NOT NULL THEN 'before'
    WHEN labels.key IS NULL THEN 'unlabelled'
    WHEN kinds > 1 THEN 'conflicting'
    WHEN error != x'' THEN 'not_predicted'
    WHEN ? AND (lines OR instr(substr(line, 1, length(line) - 1), x'0a')) THEN 'not_writable'
    ELSE 'written' END AS verdict
FROM temp.keys JOIN requests USING (number) LEFT JOIN temp.labels USING (key) ORDER BY number
"""


def join_labels(
    store: str, join: Sequence[str], *, on: str | None, output: str, reading: Callable[[int, float | None], None]
) -> Joined:
    """Joins labels to the stored requests that have none yet.

    Args:
      store: of the requests.
      join: files of labels.
      on: the column that says which request a label is of; None: `_id`, or the key.
      output: the file of labelled rows; or a folder, which gets a new file, or of images the folders of the classes.
      reading: is told how many rows of requests have been read, and which share of all.

    Raises:
      UsageError: no store, a file that exists already, or files of labels that lack a column.
      MillraceError: stored requests of several schemas, or another `millrace label` that writes.
    """
    with _opened(store) as (database, schema, layout):
        paths = storage.expand(join)
        columns = _label_columns(schema, layout, on, paths[0])
        joined, lacking = load_labels(database, paths, columns)
        number, path = _begin(database, output, lacking, images=layout.images)
        storage.check_apart(join, path)
        _load_keys(database, layout, columns.key, reading)
        one_line = not (layout.csv.quoted_newlines or layout.images)
        database.execute(_VERDICTS, (one_line,))
        verdicts = dict(database.execute("SELECT verdict, count(*) FROM verdicts GROUP BY verdict"))
        _assign(database, number)
        return dataclasses.replace(
            joined,
            **verdicts,
            file=path if _finish(database, store, number, schema, layout) else None,
            stored=sum(verdicts.values()),
            contradicted=_count(database, "verdicts WHERE verdict = 'before' AND contradicts"),
            unmatched_labels=_count(database, "labels WHERE key NOT IN (SELECT key FROM keys WHERE key IS NOT NULL)"),
        )


def write_requests(store: str, output: str) -> int:
    """Writes the raw values of all stored requests to a file, with a header. Returns how many there are.

    Raises:
      UsageError: no store, one of images, or a file that exists already.
    """
    with _opened(store) as (database, _, layout):
        if layout.images:
            raise UsageError(f"--store {store}: holds images, which are not written to a file; they are in images/")
        if os.path.lexists(output):
            raise UsageError(f"--output {output}: exists already; give another file")
        rows = 0
        with storage.wrap_errors(output), open(output, "xb") as file:
            file.write(text.header_line(layout.names, layout.csv))
            for (line,) in database.execute("SELECT line FROM requests WHERE line != x'' ORDER BY number"):
                file.write(line)
                rows += 1
    return rows


@contextlib.contextmanager
def _opened(store: str) -> Iterator[tuple[sqlite3.Connection, AnySchema, Layout]]:
    """The requests of a store for one `millrace label` at a time, and the schema that all of them have."""
    with store_errors(store, "nothing was labelled"), contextlib.closing(connect(store)) as database:
        handle = os.open(os.path.join(store, LABEL_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not storage.lock(handle, wait=False):
                raise MillraceError(f"{store}: another `millrace label` is at work there")
            layouts = database.execute(
                "SELECT * FROM layouts WHERE number IN (SELECT DISTINCT layout FROM requests) ORDER BY number"
            ).fetchall()
            if not layouts:
                raise UsageError(f"{store}: holds no requests")
            if len({row["names"] for row in layouts}) > 1:
                raise MillraceError(
                    f"{store}: holds requests of {len(layouts)} schemas with different columns; serve each schema with "
                    "a --store of its own"
                )
            schema = parse_schema(layouts[-1]["yaml"], f"{store}: the schema of the last requests")
            yield database, schema, layout_of(schema)
        finally:
            os.close(handle)


def _begin(database: sqlite3.Connection, output: str, lacking: set[str], *, images: bool) -> tuple[int, str]:
    """The number and path of the output that rows are handed to: that of a run that was killed, or a new one.

    Raises:
      UsageError: the file exists already, or another output was not completed.
    """
    folder = not images and (os.path.isdir(output) or not os.path.splitext(output)[1])
    output = os.path.abspath(output)
    pending = database.execute("SELECT * FROM outputs WHERE finished = 0").fetchone()
    if pending is not None:
        place = os.path.dirname(pending["path"]) if folder else pending["path"]
        if place != output:  # no path that was read from a file is written to unasked
            raise UsageError(
                f"an earlier run was interrupted while it handed rows to {pending['path']}; run it again with --output "
                f"{place} first, which completes it"
            )
        return pending["number"], pending["path"]
    (number,) = database.execute("SELECT coalesce(max(number), 0) + 1 FROM outputs").fetchone()
    path = os.path.join(output, f"labelled-{number:06d}.csv") if folder else output
    if not images and os.path.lexists(path):
        raise UsageError(f"{path}: exists already; give another --output")
    row = (number, path, json.dumps(sorted(lacking)))
    database.execute("INSERT INTO outputs (number, path, lacking) VALUES (?, ?, ?)", row)
    return number, path


def _load_keys(
    database: sqlite3.Connection, layout: Layout, key: str, reading: Callable[[int, float | None], None]
) -> None:
    """Reads the key of each stored row into a temporary table `keys`: NULL for a row that could not be read."""
    database.execute("CREATE TEMP TABLE keys (number INTEGER PRIMARY KEY, key BLOB)")
    count, read = _count(database, "requests"), 0
    for rows in _batches(database, "SELECT number, id, line FROM requests WHERE number > ?"):
        interrupts.check()
        if key == ID:
            keys = [(row["number"], row["id"].encode()) for row in rows]
        else:
            cells = layout.cells([row["line"] for row in rows if row["line"]])[key]
            values = iter(text.trimmed(cells).to_pylist())
            keys = [(row["number"], spelled(key, next(values)) if row["line"] else None) for row in rows]
        database.execute("BEGIN")  # of a temporary table alone: it locks nothing of the store
        database.executemany("INSERT INTO keys VALUES (?, ?)", keys)
        database.execute("COMMIT")
        read += len(rows)
        reading(read, read / count)


def _assign(database: sqlite3.Connection, output: int) -> None:
    """Gives the rows to be written their labels, and assigns them to an output."""
    for rows in _batches(database, "SELECT number, label FROM verdicts WHERE verdict = 'written' AND number > ?"):
        interrupts.check()
        with transaction(database):
            assigned = [(row["label"], output, row["number"]) for row in rows]
            database.executemany("UPDATE requests SET label = ?, output = ? WHERE number = ?", assigned)


def _batches(database: sqlite3.Connection, query: str) -> Iterator[Sequence[Any]]:
    """The rows of a query by number. Each batch is a query of its own: a long one would hold up the store's log."""
    last = -1
    while rows := database.execute(f"{query} ORDER BY number LIMIT {_ROWS_AT_ONCE}", (last,)).fetchall():
        last = rows[-1]["number"]
        yield rows


def _count(database: sqlite3.Connection, rows: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])  # noqa: S608 - of this module


def _finish(database: sqlite3.Connection, store: str, number: int, schema: AnySchema, layout: Layout) -> bool:
    """Writes the rows of an output to its place. Returns False if it has none; then the output is forgotten."""
    if not _count(database, f"requests WHERE output = {number}"):
        database.execute("DELETE FROM outputs WHERE number = ?", (number,))
        return False
    path, lacking = database.execute("SELECT path, lacking FROM outputs WHERE number = ?", (number,)).fetchone()
    rows = _batches(database, f"SELECT * FROM requests WHERE output = {number} AND number > ?")  # noqa: S608 - a number
    if isinstance(schema, Schema):
        write_file(rows, path, schema, layout, set(parse_json(lacking)))
    else:
        place_images(rows, store, path, layout)
    database.execute("UPDATE outputs SET finished = 1 WHERE number = ?", (number,))
    return True


def _label_columns(schema: AnySchema, layout: Layout, on: str | None, path: str) -> LabelColumns:
    """What is read of files of labels; `path` is the first of them."""
    if not isinstance(schema, Schema):
        names = ("label",) if len(layout.names) == 1 else layout.names
        return LabelColumns(on or ID, names[:1], names[1:], (), ",", _unusable_folders)
    columns, key = file_layout(schema, layout.names), _key_column(on, schema, layout.names, path)
    names = (columns.label, schema.label.name)
    return LabelColumns(key, names, columns.required, columns.optional, schema.csv.delimiter, _checked(schema))


def _checked(schema: Schema) -> Check:
    """Why preprocessing would reject what labels bring: the label itself, a weight, what the split is by."""
    named = {item.name: column_names(item, schema) for item in schema.items if item.raw is not None}

    def check(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
        cells = {
            name: [pa.array(columns[column], pa.binary()) for column in names]
            for name, names in named.items()
            if all(column in columns for column in names)
        }
        problems = text.problems(cells, schema)
        return {row: f"{name}: {error.reason} ({error.detail})" for row, (name, error) in problems.items()}

    return check


def _unusable_folders(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
    """The labels of images that cannot be a class, by row."""
    reasons = {}
    for name, values in columns.items():
        for row, value in enumerate(values):
            folder = folder_name(value)
            if not folder or "/" in folder or "\0" in folder or folder.startswith("."):
                reasons[row] = f"{name}: {folder[:80]!r} cannot be the name of a folder, which is an image's class"
    return reasons


def _key_column(on: str | None, schema: Schema, stored: Sequence[str], path: str) -> str:
    """The column that says which request a label is of."""
    if on is None:
        by_id = schema.key is None or ID in _header(path, schema.csv.delimiter)
        return ID if schema.key is None or by_id else column_names(schema.key, schema)[0]
    if on in ("id", "request_id", ID) and on not in stored:
        return ID
    if on not in stored:
        raise UsageError(f"--on {on}: stored requests have no such column; they have {', '.join((*stored, ID))}")
    return on


def _header(path: str, delimiter: str) -> list[str]:
    with storage.wrap_errors(path), storage.open_read(path) as file:
        first = file.read(1 << 20).split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [name.strip().strip('"') for part in first.split(delimiter) for name in part.split(",")]
