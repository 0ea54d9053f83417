"""Labelled rows as preprocessing takes them: a CSV file in the form of the schema's files, or folders of images."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
from collections.abc import Iterable, Sequence

import pyarrow as pa

from millrace.label.labels import as_bytes
from millrace.store.rows import Layout, column_names
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Ignore
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.json_files import parse_json

_MARK = b"\xef\xbb\xbf"  # says that a file is in UTF-8, whatever the schema's encoding


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """The columns of a labelled file.

    Attributes:
      columns: for each place the name of a stored column or of a column of labels; None: an empty cell.
      header: the header; None: the file has none.
      label: the label's column, as the schema's files call it.
      more: columns that are not stored with requests, and that the schema reads.
    """

    columns: tuple[str | None, ...]
    header: tuple[str, ...] | None
    label: str
    more: tuple[str, ...]


def file_layout(schema: Schema, stored: Sequence[str]) -> FileLayout:
    """The layout of files of a schema whose requests are stored with these columns.

    Raises:
      UsageError: the schema finds columns by name and by position, and names no columns.
    """
    csv = schema.csv
    split = () if schema.split.by in ("row", "file") else schema.split.by
    features = [f for f in schema.features if f.refs and (not isinstance(f, Ignore) or f.name in split)]
    refs = [ref for item in schema.items for ref in item.refs]
    (label,) = column_names(schema.label, schema)
    names = tuple(name for item in (*features, schema.label) for name in column_names(item, schema))
    more = tuple(name for name in names if name not in (*stored, label))
    by_position = csv.columns is None and any(isinstance(ref, int) for ref in refs)
    if not by_position and csv.header != "none":
        return FileLayout(names, names, label, more)
    if by_position and any(isinstance(ref, str) for ref in refs):
        raise UsageError(
            f"{schema.name}: finds columns by name and by position; name all of them: csv: {{columns: [...]}}"
        )
    places: dict[int, str] = {}
    for item in (*features, schema.label):
        for ref, name in zip(item.refs, column_names(item, schema), strict=True):
            places[ref if isinstance(ref, int) else (csv.columns or ()).index(ref)] = name
    last = max(ref if isinstance(ref, int) else 0 for ref in refs)
    columns = tuple(places.get(i) for i in range(csv.width or last + 1))
    header = tuple(name or f"column_{i}" for i, name in enumerate(columns)) if csv.header == "present" else None
    return FileLayout(columns, header, label, more)


def write_file(batches: Iterable[Sequence[sqlite3.Row]], path: str, schema: Schema, stored: Layout) -> None:
    """Writes labelled rows to a file, which appears when it is complete.

    Args:
      batches: rows of the store's requests.
      path: of the file.
      schema: of the requests.
      stored: the layout of their raw values.
    """
    layout, csv = file_layout(schema, stored.names), schema.csv
    with storage.wrap_errors(path), storage.NewFile(path) as file:
        file.write(b"" if csv.encoding == "utf-8" else _MARK)
        if layout.header is not None:
            file.write(text.header_line(layout.header, csv))
        for rows in batches:
            cells: dict[str, pa.BinaryArray] = stored.cells([row["line"] for row in rows])
            nothing = pa.array([b""] * len(rows), pa.binary())
            labels = zip(*(parse_json(row["label"]) for row in rows), strict=True)
            for column, values in zip((layout.label, *layout.more), labels, strict=True):
                cells[column] = pa.array([as_bytes(value) for value in values], pa.binary())
            quoted = [text.string_cells(nothing if name is None else cells[name], csv) for name in layout.columns]
            file.write(text.lines(quoted, csv)[0])


def write_images(
    batches: Iterable[Sequence[sqlite3.Row]], path: str, stored: Layout, database: sqlite3.Connection
) -> None:
    """Writes each image of labelled rows into the folder of its class, or of the identity that it shows.

    Args:
      batches: rows of the store's requests.
      path: the folder of folders. An image that is there already stays, so a run may be repeated.
      stored: the layout of the rows, which has the names of images.
      database: the store, which has the images.
    """
    for rows in batches:
        names = stored.cells([row["line"] for row in rows])
        for i, row in enumerate(rows):
            for column, label in zip(stored.names, parse_json(row["label"]), strict=True):
                name = names[column][i].as_py().decode()
                target = os.path.join(path, folder_name(as_bytes(label)), name)
                if not os.path.exists(target):
                    folders.make(os.path.dirname(target))
                    (data,) = database.execute("SELECT data FROM images WHERE name = ?", (name,)).fetchone()
                    storage.write_bytes(target, data)


def folder_name(label: bytes) -> str:
    """The name of the folder of a class."""
    return label.decode("utf-8", "surrogateescape").strip()
