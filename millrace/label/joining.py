"""Joins labels to the requests of a store: completes what an earlier run left, hands rows out, writes them."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from millrace.label.handout import Joined, hand_out
from millrace.label.labels import Check, Labels
from millrace.label.outputs import file_layout, folder_name, place_images, write_file
from millrace.store.database import LABEL_LOCK, connect, store_errors
from millrace.store.rows import ID, Layout, column_names, layout_of
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.loader import AnySchema, parse_schema
from schemas.spec.table import Schema
from schemas.storage.json_files import parse_json

LABEL = "label"


def join_labels(
    store: str,
    join: Sequence[str],
    *,
    on: str | None,
    output: str,
    reading: Callable[[int, float | None], None],
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
        if isinstance(schema, Schema):
            columns, key = file_layout(schema, layout.names), _key_column(on, schema, layout.names, paths[0])
            labels = Labels(
                paths,
                key,
                (columns.label, schema.label.name),
                columns.required,
                columns.optional,
                delimiter=schema.csv.delimiter,
                check=_checked(schema),
            )
        else:
            names = (LABEL,) if len(layout.names) == 1 else layout.names
            key = on or ID
            labels = Labels(paths, key, names[:1], names[1:], (), delimiter=",", check=_unusable_folders)
        with contextlib.closing(labels):
            number, path = _begin(database, output, labels, images=layout.images)
            storage.check_apart(join, path)
            joined = hand_out(database, layout, key, labels, number, reading)
            if _finish(database, store, number, schema, layout):
                joined.file = path
    return joined


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


def _begin(database: sqlite3.Connection, output: str, labels: Labels, *, images: bool) -> tuple[int, str]:
    """The number and path of the output that rows are handed to: that of a run that was killed, or a new one.

    Raises:
      UsageError: the file exists already, or another output was not completed.
    """
    folder = images or os.path.isdir(output) or not os.path.splitext(output)[1]
    output = os.path.abspath(output)
    pending = database.execute("SELECT * FROM outputs WHERE finished = 0").fetchone()
    if pending is not None:
        place = os.path.dirname(pending["path"]) if folder and not images else pending["path"]
        if place != output:  # no path that was read from a file is written to unasked
            raise UsageError(
                f"an earlier run was interrupted while it handed rows to {pending['path']}; run it again with --output "
                f"{place} first, which completes it"
            )
        return pending["number"], pending["path"]
    (number,) = database.execute("SELECT coalesce(max(number), 0) + 1 FROM outputs").fetchone()
    path = os.path.join(output, f"labelled-{number:06d}.csv") if folder and not images else output
    if not images and os.path.lexists(path):
        raise UsageError(f"{path}: exists already; give another --output")
    lacking = json.dumps(sorted(labels.lacking))
    database.execute("INSERT INTO outputs (number, path, lacking) VALUES (?, ?, ?)", (number, path, lacking))
    return number, path


def _finish(database: sqlite3.Connection, store: str, number: int, schema: AnySchema, layout: Layout) -> bool:
    """Writes the rows of an output to its place. Returns False if it has none; then the output is forgotten."""
    pending = database.execute("SELECT * FROM outputs WHERE number = ?", (number,)).fetchone()
    if database.execute("SELECT 1 FROM requests WHERE output = ? LIMIT 1", (number,)).fetchone() is None:
        database.execute("DELETE FROM outputs WHERE number = ?", (number,))
        return False
    if isinstance(schema, Schema):
        write_file(database, number, pending["path"], schema, layout, set(parse_json(pending["lacking"])))
    else:
        place_images(database, store, number, pending["path"], layout)
    database.execute("UPDATE outputs SET finished = 1 WHERE number = ?", (number,))
    return True


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
