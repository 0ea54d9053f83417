"""Labelled rows as preprocessing takes them: a CSV file in the form of the schema's files, or folders of images."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set
from sqlite3 import Row

import pyarrow as pa

from millrace.label.labels import as_bytes
from millrace.store.database import image_path
from millrace.store.rows import Layout, column_names
from schemas import storage
from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Ignore
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.json_files import parse_json

MARK = b"\xef\xbb\xbf"  # says that a file is in UTF-8, whatever the schema's encoding


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """The columns of a labelled file.

    Attributes:
      columns: for each place the name of a stored column or of a column of labels; None: an empty cell.
      header: the header; None: the file has none.
      label: the label's column, as the schema's files call it.
      required: columns that are not stored with requests, and that the schema reads.
      optional: columns that the schema ignores; in the file if they are known.
    """

    columns: tuple[str | None, ...]
    header: tuple[str, ...] | None
    label: str
    required: tuple[str, ...]
    optional: tuple[str, ...]


def file_layout(schema: Schema, stored: Sequence[str]) -> FileLayout:
    """The layout of files of a schema whose requests are stored with these columns.

    Raises:
      UsageError: the schema finds columns by name and by position, and names no columns.
    """
    csv = schema.csv
    named = {item.name: tuple(column_names(item, schema)) for item in schema.items}
    split = () if schema.split.by in ("row", "file") else schema.split.by
    needed = [f for f in schema.features if f.refs and (not isinstance(f, Ignore) or f.name in split)]
    ignored = [f for f in schema.features if isinstance(f, Ignore) and f.name not in split]
    required = tuple(n for f in needed for n in named[f.name] if n not in stored)
    optional = tuple(n for f in ignored for n in named[f.name] if n not in stored)
    (label,) = named[schema.label.name]
    by_position = csv.columns is None and any(isinstance(ref, int) for item in schema.items for ref in item.refs)
    if by_position and any(isinstance(ref, str) for item in schema.items for ref in item.refs):
        raise UsageError(
            f"{schema.name}: finds columns by name and by position; name all of them: csv: {{columns: [...]}}"
        )
    if by_position or csv.header == "none":
        columns = _by_position(schema, named)
        header = tuple(name or f"column_{i}" for i, name in enumerate(columns)) if csv.header == "present" else None
        return FileLayout(columns, header, label, required, optional)
    names = tuple(n for f in (*needed, *ignored, schema.label) for n in named[f.name])
    return FileLayout(names, names, label, required, optional)


def _by_position(schema: Schema, named: Mapping[str, Sequence[str]]) -> tuple[str | None, ...]:
    header = schema.csv.columns
    places: dict[int, str] = {}
    for item in schema.items:
        for ref, name in zip(item.refs, named[item.name], strict=True):
            places[ref if isinstance(ref, int) else header.index(ref) if header else 0] = name
    width = schema.csv.width or max(places) + 1
    return tuple(places.get(i) for i in range(width))


def write_file(batches: Iterable[Sequence[Row]], path: str, schema: Schema, stored: Layout, lacking: Set[str]) -> None:
    """Writes labelled rows to a file, which appears when it is complete.

    Args:
      batches: rows of the store's requests.
      path: of the file.
      schema: of the requests.
      stored: the layout of their raw values.
      lacking: optional columns that no file of labels has.
    """
    layout, csv = file_layout(schema, stored.names), schema.csv
    label_names = (layout.label, *layout.required, *layout.optional)
    columns = [name for name in layout.columns if name not in lacking]
    if layout.header is None:  # cells are found by their position
        columns = [None if name in lacking else name for name in layout.columns]
    with storage.wrap_errors(path), storage.NewFile(path) as file:
        file.write(b"" if csv.encoding == "utf-8" else MARK)
        if layout.header is not None:
            file.write(text.header_line([name for name in layout.header if name not in lacking], csv))
        for rows in batches:
            cells: dict[str, pa.BinaryArray] = stored.cells([row["line"] for row in rows])
            labels = zip(*(parse_json(row["label"]) for row in rows), strict=True)
            for name, values in zip(label_names, labels, strict=True):
                cells[name] = pa.array([as_bytes(value) for value in values], pa.binary())
            nothing = pa.array([b""] * len(rows), pa.binary())
            quoted = [text.string_cells(nothing if name is None else cells[name], csv) for name in columns]
            file.write(text.lines(quoted, csv)[0])


def place_images(batches: Iterable[Sequence[Row]], store: str, path: str, stored: Layout) -> None:
    """Links or copies each image of labelled rows into the folder of its class, or of the identity that it shows.

    The same file in the same folder is there once, so a run may be repeated.
    """
    filled: set[str] = set()
    with storage.wrap_errors(path):
        for rows in batches:
            images = stored.cells([row["line"] for row in rows])
            for i, row in enumerate(rows):
                for name, label in zip(stored.names, parse_json(row["label"]), strict=True):
                    folder = os.path.join(path, folder_name(as_bytes(label)))
                    file_name = os.fsdecode(images[name][i].as_py())
                    _place(image_path(store, file_name, row["received"]), folder)
                    filled.add(folder)
        for folder in filled:
            storage.sync_folder(folder)


def folder_name(label: bytes) -> str:
    """The name of the folder of a class."""
    return label.decode("utf-8", "surrogateescape").strip()


def _place(image: str, folder: str) -> None:
    target = os.path.join(folder, os.path.basename(image))
    if os.path.exists(target):
        return
    folders.make(folder)
    try:
        os.link(image, target)
    except OSError:  # another file system
        with open(image, "rb") as file, storage.NewFile(target) as copied:
            shutil.copyfileobj(file, copied)
