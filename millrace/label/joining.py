"""Joins labels to the requests of a store, and hands the labelled rows out, each once.

A short transaction assigns rows to an output, and they stay assigned. The output is written from its rows after that,
so a run that was killed is completed by the next one, with the same bytes. Rows are assigned some thousand at a time,
so that a server can store requests in between.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millrace.label.labels import LabelColumns, load_labels, open_labels, spelled
from millrace.label.outputs import file_layout, folder_name, write_file, write_images
from millrace.store.database import LABEL_LOCK, connect, store_errors, transaction
from millrace.store.rows import ID, Layout, column_names, layout_of
from schemas import interrupts, storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema, parse_schema
from schemas.spec.table import Schema
from schemas.storage.json_files import parse_json

_ROWS_AT_ONCE = 4000


@dataclasses.dataclass(frozen=True)
class Joined:
    """What came of a run.

    Attributes:
      file: the new rows; None: there are none.
      counts: `stored` rows, and of these by what became of them `written`, `before`, `unlabelled`, `conflicting`,
        `not_predicted` and `not_writable`; `contradicted` are those `before` whose label differs now. `labels` read,
        and of these `invalid_labels` and `duplicate_labels`; `conflicting_keys` and `unmatched_labels` by key.
      examples: the file, the row and the reason of the first labels that cannot be used.
    """

    file: str | None
    counts: Mapping[str, int]
    examples: Sequence[str]


def join_labels(
    store: str, join: Sequence[str], *, on: str | None, output: str, reading: Callable[[int, float | None], None]
) -> Joined:
    """Joins labels to the stored requests that have none yet.

    Args:
      store: of the requests.
      join: files of labels.
      on: the column that says which request a label is of; None: `_id`, or the key.
      output: the file of labelled rows; or a folder, which gets a new file, or of images the folders of the classes.
      reading: takes how many rows of requests have been read, and which share of all.

    Raises:
      UsageError: no store, a file that exists already, or files of labels that lack a column.
      MillraceError: another `millrace label` is at work on the store.
    """
    with _opened(store) as (database, schema, layout):
        paths = storage.expand(join)
        columns = _label_columns(schema, layout, on, paths[0])
        counts, examples = load_labels(database, paths, columns)
        number, path = _begin(database, output, images=layout.images)
        storage.check_apart(join, path)
        counts += _assign(database, layout, columns.key, number, reading)
        counts["unmatched_labels"] = _count(database, "labels WHERE NOT matched")
        if not _count(database, f"requests WHERE output = {number}"):
            database.execute("DELETE FROM outputs WHERE number = ?", (number,))
            return Joined(None, counts, examples)
        rows = _batches(database, f"SELECT * FROM requests WHERE output = {number} AND number > ?")  # noqa: S608 - a number
        if isinstance(schema, Schema):
            write_file(rows, path, schema, layout)
        else:
            write_images(rows, path, layout, database)
        database.execute("UPDATE outputs SET finished = 1 WHERE number = ?", (number,))
        return Joined(path, counts, examples)


def write_requests(store: str, output: str) -> int:
    """Writes the raw values of all stored requests to a file, with a header. Returns how many there are.

    Raises:
      UsageError: no store, one of images, or a file that exists already.
    """
    with _opened(store) as (database, _, layout):
        if layout.images:
            raise UsageError(f"--store {store}: holds images, which are not written to a file; label them with --join")
        if os.path.lexists(output):
            raise UsageError(f"--output {output}: exists already; give another file")
        count = 0
        with storage.wrap_errors(output), open(output, "xb") as file:
            file.write(text.header_line(layout.names, layout.csv))
            for (line,) in database.execute("SELECT line FROM requests WHERE line != x'' ORDER BY number"):
                file.write(line)
                count += 1
    return count


@contextlib.contextmanager
def _opened(store: str) -> Iterator[tuple[sqlite3.Connection, AnySchema, Layout]]:
    """The requests of a store, for one `millrace label` at a time, and the schema that is served."""
    with (
        store_errors(store, "nothing was labelled"),
        contextlib.closing(connect(store)) as database,
        open(os.path.join(store, LABEL_LOCK), "ab") as lock,
    ):
        if not storage.lock(lock, wait=False):
            raise MillraceError(f"{store}: another `millrace label` is at work there")
        if not _count(database, "(SELECT 1 FROM requests LIMIT 1)"):
            raise UsageError(f"{store}: holds no requests")
        (yaml,) = database.execute("SELECT yaml FROM served").fetchone()
        schema = parse_schema(yaml, f"{store}: the schema of the last requests")
        yield database, schema, layout_of(schema)


def _label_columns(schema: AnySchema, layout: Layout, on: str | None, path: str) -> LabelColumns:
    """What is read of files of labels; `path` is the first of them."""
    if on is not None and on not in (*layout.names, ID):
        raise UsageError(f"--on {on}: stored requests have no such column; they have {', '.join((*layout.names, ID))}")
    if not isinstance(schema, Schema):
        names = ("label",) if len(layout.names) == 1 else layout.names
        return LabelColumns(on or ID, names[:1], names[1:], ",", _unusable_folders)
    if on is None:
        with open_labels(path, schema.csv.delimiter) as (header, _):
            on = ID if schema.key is None or ID in header else column_names(schema.key, schema)[0]
    columns = file_layout(schema, layout.names)
    labels = (columns.label, schema.label.name)

    def check(cells: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
        """Why preprocessing would reject what labels bring: the label itself, a weight, what the split is by."""
        named = {item.name: column_names(item, schema) for item in schema.items if item.raw is not None}
        arrays = {
            name: [pa.array(cells[column], pa.binary()) for column in names]
            for name, names in named.items()
            if cells.keys() >= set(names)
        }
        problems = text.problems(arrays, schema)
        return {row: f"{name}: {error.reason} ({error.detail})" for row, (name, error) in problems.items()}

    return LabelColumns(on, labels, columns.more, schema.csv.delimiter, check)


def _unusable_folders(cells: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
    """The labels of images that cannot be a class, by row."""
    reasons = {}
    for column, values in cells.items():
        for row, value in enumerate(values):
            name = folder_name(value)
            if not name or "/" in name or "\0" in name or name.startswith("."):
                reasons[row] = f"{column}: {name[:80]!r} cannot be the name of a folder, which is an image's class"
    return reasons


def _begin(database: sqlite3.Connection, output: str, *, images: bool) -> tuple[int, str]:
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
    database.execute("INSERT INTO outputs (number, path) VALUES (?, ?)", (number, path))
    return number, path


def _assign(
    database: sqlite3.Connection, layout: Layout, key: str, output: int, reading: Callable[[int, float | None], None]
) -> collections.Counter[str]:
    """Gives stored rows their labels, and assigns them to an output. Returns the counts of rows."""
    counts: collections.Counter[str] = collections.Counter()
    total, one_line = _count(database, "requests"), not (layout.csv.quoted_newlines or layout.images)
    for rows in _batches(database, "SELECT number, id, line, error, label, output FROM requests WHERE number > ?"):
        interrupts.check()
        keys = _keys(rows, layout, key)
        marks = ",".join("?" * len(keys))
        query = f"UPDATE labels SET matched = 1 WHERE key IN ({marks}) RETURNING key, cells, conflicts"  # noqa: S608 - question marks
        labels = {label["key"]: label for label in database.execute(query, keys)}
        assigned = []
        for row, row_key in zip(rows, keys, strict=True):
            label = labels.get(row_key)
            verdict = _verdict(row, label, one_line=one_line)
            counts[verdict] += 1
            if label is not None and verdict == "written":
                assigned.append((label["cells"], output, row["number"]))
            elif label is not None and verdict == "before":
                counts["contradicted"] += not label["conflicts"] and label["cells"] != row["label"]
        if assigned:
            with transaction(database):
                database.executemany("UPDATE requests SET label = ?, output = ? WHERE number = ?", assigned)
        counts["stored"] += len(rows)
        reading(counts["stored"], counts["stored"] / total)
    return counts


def _keys(rows: Sequence[sqlite3.Row], layout: Layout, key: str) -> list[bytes | None]:
    """The key of each stored row; None for a row that could not be read."""
    if key == ID:
        return [row["id"].encode() for row in rows]
    cells = layout.cells([row["line"] for row in rows if row["line"]])[key]
    values = iter(text.trimmed(cells).to_pylist())
    return [spelled(key, next(values)) if row["line"] else None for row in rows]


def _verdict(row: sqlite3.Row, label: sqlite3.Row | None, *, one_line: bool) -> str:
    """What becomes of a stored row; see `Joined.counts`."""
    if row["output"] is not None:
        return "before"
    if label is None:
        return "unlabelled"
    if label["conflicts"]:
        return "conflicting"
    if row["error"]:
        return "not_predicted"
    if one_line and (b"\n" in row["line"][:-1] or any("\n" in cell for cell in parse_json(label["cells"]))):
        return "not_writable"
    return "written"


def _batches(database: sqlite3.Connection, query: str) -> Iterator[Sequence[Any]]:
    """The rows of a query by number. Each batch is a query of its own: a long one would hold up the store's log."""
    last = -1
    while rows := database.execute(f"{query} ORDER BY number LIMIT {_ROWS_AT_ONCE}", (last,)).fetchall():
        last = rows[-1]["number"]
        yield rows


def _count(database: sqlite3.Connection, rows: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])  # noqa: S608 - of this module
