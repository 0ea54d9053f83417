"""Joins labels to stored requests: files, or folders of images, that preprocessing takes, each row once."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.label.joining import UNNAMED, Emitted, Joined, Labelled, labelled_rows
from millrace.label.known_labels import Check, KnownLabels, Progress
from millrace.store.columns import ID, MARK, column_names, inputs_of
from millrace.store.folder import read_schema
from millrace.store.segments import stored_segments
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.features import Ignore
from schemas.spec.table import Schema
from schemas.storage import folders

LABEL = "label"
Reading = Callable[[int, float | None], None]  # is told of rows that were read, and of the share of all bytes


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """A file's columns.

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


def layout_of(schema: Schema, stored: tuple[str, ...]) -> FileLayout:
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
    if by_position or (csv.header == "none"):
        columns = _by_position(schema, named)
        header = tuple(name or f"column_{i}" for i, name in enumerate(columns)) if csv.header == "present" else None
        return FileLayout(columns, header, label, required, optional)
    names = tuple(n for f in (*needed, *ignored, schema.label) for n in named[f.name])
    return FileLayout(names, names, label, required, optional)


def _by_position(schema: Schema, named: dict[str, tuple[str, ...]]) -> tuple[str | None, ...]:
    known = schema.csv.columns
    places: dict[int, str] = {}
    for item in schema.items:
        for ref, name in zip(item.refs, named[item.name], strict=True):
            places[ref if isinstance(ref, int) else known.index(ref) if known else 0] = name
    width = schema.csv.width or max(places) + 1
    return tuple(places.get(i) for i in range(width))


def join_labels(
    store: str,
    join: Sequence[str],
    *,
    on: str | None,
    output: str,
    name: str,
    reading: Reading,
) -> Joined:
    """Joins labels to the stored requests that have none yet.

    Args:
      store: of the requests.
      join: files of labels.
      on: the column that says which request a label is of; None: `_id`, or the key.
      output: the folder of labelled rows.
      name: of a new file there; `{}` is its number.
      reading: is told how many rows of labels and of requests have been read, and which share of their bytes.

    Raises:
      UsageError: no store, or files of labels that lack a column.
      MillraceError: stored requests of several schemas, or damaged ones.
    """
    segments = stored_segments(store)
    if not segments:
        raise UsageError(f"{store}: holds no requests")
    stored = segments[-1].columns
    if any(inputs_of(segment.columns) != inputs_of(stored) for segment in segments):
        raise MillraceError(
            f"{store}: holds requests of {len({segment.schema for segment in segments})} schemas with "
            "different columns; move the files of all but one elsewhere"
        )
    schema = read_schema(store, segments[-1].schema)
    paths = storage.expand(join)
    progress = _progress(reading, sum(map(os.path.getsize, paths)) + sum(segment.size() for segment in segments))
    if isinstance(schema, Schema):
        layout, check, delimiter = layout_of(schema, stored), _checked(schema), schema.csv.delimiter
        names = given = (layout.label, *layout.required, *layout.optional)
        labels: Sequence[str] = (layout.label, schema.label.name)
        key = _key_column(on, schema, stored, paths[0])
        storage.check_apart(join, output, inside=[name.format("000001")])
    else:
        names = (LABEL,) if len(schema.image_names) == 1 else schema.image_names
        layout, check, delimiter = FileLayout((), None, names[0], names[1:], ()), _no_folders, ","
        given = tuple(f"label {name}" for name in names)
        labels, key = names[:1], on or ID
    emitted, joined = Emitted(output), Joined()
    with emitted.locked():
        required, optional = layout.required, layout.optional
        known = KnownLabels(paths, key, labels, required, optional, delimiter=delimiter, check=check, progress=progress)
        number, temporary, final = emitted.next_number(), "", ""
        with contextlib.closing(known), contextlib.ExitStack() as ended:
            rows = labelled_rows(segments, key, known, given, emitted, joined, progress)
            if isinstance(schema, Schema):
                final = os.path.join(output, name.format(f"{number:06d}"))
                if os.path.lexists(final):
                    raise UsageError(f"{final}: exists already; give another --name")
                temporary = os.path.join(output, f".{secrets.token_hex(8)}{UNNAMED}")
                ended.callback(storage.delete, temporary)
                written = _write_lines(temporary, rows, schema, layout, known.lacking, joined)
            else:
                written = _place_images(store, output, rows, schema.image_names, given)
            for some in written:
                emitted.add(some.token, some.places, some.codes)
                joined.written += len(some.places)
            joined.count(known)
            if joined.written:
                ended.pop_all()  # from here on the next run completes it
                emitted.commit(number, temporary, final)
                joined.file = final or output
    return joined


def _progress(reading: Reading, size: int) -> Progress:
    done = [0, 0]

    def progress(rows: int, more: int) -> None:
        done[0] += rows
        done[1] += more
        reading(done[0], done[1] / max(size, 1))

    return progress


def _checked(schema: Schema) -> Check:
    """Why preprocessing would reject what labels bring: the label itself, a weight, what the split is by."""
    named = {item.name: column_names(item, schema) for item in schema.items if item.raw is not None}

    def check(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
        cells = {
            name: [pa.array(columns[each], pa.binary()) for each in names]
            for name, names in named.items()
            if all(each in columns for each in names)
        }
        found = text.problems(cells, schema)
        return {row: f"{name}: {error.reason} ({error.detail})" for row, (name, error) in found.items()}

    return check


def _key_column(on: str | None, schema: Schema, stored: Sequence[str], path: str) -> str:
    """The column that says which request a label is of."""
    if on is None:
        by_id = schema.key is None or ID in _header(path, schema.csv.delimiter)
        on = ID if schema.key is None or by_id else column_names(schema.key, schema)[0]
    elif on in ("id", "request_id", "_id") and on not in stored:
        on = ID
    if on not in stored:
        raise UsageError(f"--on {on}: stored requests have no such column; they have {', '.join(stored)}")
    return on


def _header(path: str, delimiter: str) -> list[str]:
    with storage.wrap_errors(path), storage.open_read(path) as file:
        first = file.read(1 << 20).split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [name.strip().strip('"') for part in first.split(delimiter) for name in part.split(",")]


def _write_lines(
    path: str, labelled: Iterable[Labelled], schema: Schema, layout: FileLayout, lacking: Set[str], joined: Joined
) -> Iterator[Labelled]:
    """Writes rows to a file, on disk at the end; gives those that were written, and counts those whose line ends would
    not be read back. `lacking`: the columns that no file of labels has."""
    csv = schema.csv
    columns = [name for name in layout.columns if name not in lacking]
    if layout.header is None:
        columns = [None if name in lacking else name for name in layout.columns]
    named = [name for name in columns if name is not None]
    with storage.wrap_errors(path), open(path, "xb") as file:
        file.write(b"" if csv.encoding == "utf-8" else MARK)
        if layout.header is not None:
            file.write(text.header_line([name for name in layout.header if name not in lacking], csv))
        for chosen in labelled:
            rows = chosen
            if not csv.quoted_newlines:
                ends = [pc.match_substring(rows.columns[name], "\n").to_numpy(zero_copy_only=False) for name in named]
                several = np.any(ends, axis=0)
                joined.not_writable += int(several.sum())
                rows = chosen.where(~several) if several.any() else chosen
            nothing = pa.array([b""] * len(rows.places), pa.binary())
            cells = [text.string_cells(nothing if name is None else rows.columns[name], csv) for name in columns]
            file.write(text.lines(cells, csv)[0])
            yield rows
        file.flush()
        os.fsync(file.fileno())


def _place_images(
    store: str, output: str, labelled: Iterable[Labelled], names: Sequence[str], given: Sequence[str]
) -> Iterator[Labelled]:
    """Links or copies each image whose label is known into the folder of its class, or of the identity that it shows.

    The same file in the same folder is there once, so a run may be repeated.

    Args:
      store: that holds the images.
      output: the folder of the classes' folders.
      labelled: the rows.
      names: the columns of images.
      given: those of their labels.
    """
    filled: set[str] = set()
    with storage.wrap_errors(output):
        for rows in labelled:
            for image_column, label_column in zip(names, given, strict=True):
                images, labels = (rows.columns[name].to_pylist() for name in (image_column, label_column))
                for image, label in zip(images, labels, strict=True):
                    folder = os.path.join(output, _folder_name(label))
                    _place(os.path.join(store, os.fsdecode(image)), folder)
                    filled.add(folder)
            yield rows
        for folder in filled:
            storage.sync_folder(folder)


def _no_folders(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
    """The labels that cannot be a class, by row."""
    found = {}
    for name, values in columns.items():
        for row, value in enumerate(values):
            folder = _folder_name(value)
            if not folder or "/" in folder or "\0" in folder or folder.startswith("."):
                found[row] = f"{name}: {folder[:80]!r} cannot be the name of a folder, which is an image's class"
    return found


def _folder_name(label: bytes) -> str:
    return label.decode("utf-8", "surrogateescape").strip()


def _place(image: str, folder: str) -> None:
    target = os.path.join(folder, os.path.basename(image))
    if os.path.exists(target):
        return
    folders.make(folder)
    try:
        os.link(image, target)
    except FileExistsError:
        return
    except OSError:  # another file system
        aside = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
        shutil.copyfile(image, aside)
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.rename(aside, target)
