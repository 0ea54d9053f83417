"""Labelled rows as preprocessing takes them: a CSV file in the form of the schema's files, or folders of images."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
from collections.abc import Iterable, Sequence

from millrace.store.layout import RequestLayout, column_names
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Ignore
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.json_files import parse_json

_MARK = b"\xef\xbb\xbf"  # says that a file is in UTF-8, whatever the schema's encoding


def label_columns(schema: AnySchema, layout: RequestLayout) -> list[str]:
    """Returns the columns that come from files of labels: the label, then what is read and not stored with requests."""
    if not isinstance(schema, Schema):
        return ["label"] if len(layout.names) == 1 else list(layout.names)
    (label,) = column_names(schema.label, schema)
    return [label, *(name for name in _names_by_ref(schema).values() if name not in (*layout.names, label))]


def file_columns(schema: Schema) -> list[str | None]:
    """Returns the column at each place of a file of the schema; None: an empty cell.

    Raises:
      UsageError: the schema finds columns by name and by position, and names no columns.
    """
    names, header = _names_by_ref(schema), schema.csv.columns
    refs = [ref for item in schema.items for ref in item.refs]
    positions = [ref for ref in refs if isinstance(ref, int)]
    if not (_by_position(schema) or schema.csv.header == "none"):
        return list(names.values())
    if header is None and len(positions) < len(refs):
        raise UsageError(
            f"{schema.name}: finds columns by name and by position; name all of them: csv: {{columns: [...]}}"
        )
    places = {ref if isinstance(ref, int) else (header or ()).index(ref): name for ref, name in names.items()}
    return [places.get(i) for i in range(schema.csv.width or max(positions) + 1)]


def write_table(batches: Iterable[Sequence[sqlite3.Row]], path: str, schema: Schema, layout: RequestLayout) -> None:
    """Writes rows of the table `requests` with their labels to a file, which appears when it is complete."""
    columns, names, options = file_columns(schema), label_columns(schema, layout), schema.csv
    with storage.wrap_errors(path), storage.NewFile(path) as file:
        file.write(b"" if options.encoding == "utf-8" else _MARK)
        if options.header == "present" or (options.header == "auto" and not _by_position(schema)):
            file.write(text.header_line([name or f"column_{i}" for i, name in enumerate(columns)], options))
        for rows in batches:
            lines = io.StringIO()
            writer = csv.writer(
                lines, "unix", delimiter=options.delimiter, quotechar=options.quote, quoting=csv.QUOTE_ALL
            )
            for row in rows:
                labels = (as_bytes(cell).decode("latin-1") for cell in parse_json(row["label"]))
                cells = {**layout.cells(row["line"]), **dict(zip(names, labels, strict=True))}
                writer.writerow(["" if name is None else cells[name] for name in columns])
            file.write(lines.getvalue().encode("latin-1"))


def write_images(
    batches: Iterable[Sequence[sqlite3.Row]], folder: str, layout: RequestLayout, database: sqlite3.Connection
) -> None:
    """Writes each image of labelled rows into the folder of its class, or of the identity that it shows.

    An image that is there already stays, so a run may be repeated.
    """
    for rows in batches:
        for row in rows:
            labels = map(as_bytes, parse_json(row["label"]))
            for name, label in zip(layout.cells(row["line"]).values(), labels, strict=True):
                path = os.path.join(folder, folder_name(label), name)
                if not os.path.exists(path):
                    folders.make(os.path.dirname(path))
                    (data,) = database.execute("SELECT data FROM images WHERE name = ?", (name,)).fetchone()
                    storage.write_bytes(path, data)


def folder_name(label: bytes) -> str:
    """Returns the name of the folder of a class."""
    return label.decode("utf-8", "surrogateescape").strip()


def as_bytes(cell: str) -> bytes:
    """Returns the bytes of a cell of labels, those that are not UTF-8 included."""
    return cell.encode("utf-8", "surrogateescape")


def _names_by_ref(schema: Schema) -> dict[int | str, str]:
    """Returns the columns that preprocessing reads, by how the schema finds them; the label's is last."""
    split = () if schema.split.by in ("row", "file") else schema.split.by
    features = [f for f in schema.features if f.refs and (not isinstance(f, Ignore) or f.name in split)]
    items = (*features, schema.label)
    return {ref: name for item in items for ref, name in zip(item.refs, column_names(item, schema), strict=True)}


def _by_position(schema: Schema) -> bool:
    return schema.csv.columns is None and any(isinstance(ref, int) for item in schema.items for ref in item.refs)
