"""Joins labels to stored requests: files, or folders of images, that preprocessing takes, each row once."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.label.joining import Emitted, Joined, Labelled, LabelOptions, labelled_rows
from millrace.label.known_labels import Check, KnownLabels, Progress
from millrace.store.columns import ID, MARK, column_names, inputs_of
from millrace.store.folder import read_schema
from millrace.store.segments import StoredSegment, stored_segments
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.features import Feature, Ignore, Label
from schemas.spec.images import ImageSchema
from schemas.spec.table import CsvOptions, Schema
from schemas.storage import folders


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
    named = {item.name: names_of(item, schema) for item in schema.items}
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


def names_of(item: Feature | Label, schema: Schema) -> tuple[str, ...]:
    """What the columns of a feature, or of the label, are called."""
    return tuple(column_names(item, schema))


def _by_position(schema: Schema, named: dict[str, tuple[str, ...]]) -> tuple[str | None, ...]:
    known = schema.csv.columns
    places: dict[int, str] = {}
    for item in schema.items:
        for ref, name in zip(item.refs, named[item.name], strict=True):
            places[ref if isinstance(ref, int) else known.index(ref) if known else 0] = name
    width = schema.csv.width or max(places) + 1
    return tuple(places.get(i) for i in range(width))


Reading = Callable[[int, float | None], None]  # is told of rows that were read, and of the share of all bytes


def join_labels(options: LabelOptions, reading: Reading = lambda rows, share: None) -> Joined:
    """Joins labels to the stored requests that have none yet.

    Args:
      options: what is joined.
      reading: is told how many rows of labels and of requests have been read, and which share of their bytes.

    Raises:
      UsageError: no store, or files of labels that lack a column.
      MillraceError: stored requests of several schemas, or damaged ones.
    """
    segments = stored_segments(options.store)
    if not segments:
        raise UsageError(f"{options.store}: holds no requests")
    schemas = Counter(segment.schema for segment in segments)
    newest = segments[-1]
    if any(inputs_of(segment.columns) != inputs_of(newest.columns) for segment in segments):
        raise MillraceError(
            f"{options.store}: holds requests of {len(schemas)} schemas with different columns; move the files of all "
            "but one elsewhere"
        )
    schema = read_schema(options.store, newest.schema)
    paths = storage.expand(options.join)
    progress = _progress(reading, sum(map(os.path.getsize, paths)) + sum(segment.size() for segment in segments))
    if not isinstance(schema, Schema):
        return join_image_labels(options, segments, schema, progress)
    layout = layout_of(schema, newest.columns)
    on = _key_column(options, schema, newest, paths[0])
    storage.check_apart(options.join, options.output, inside=[options.name.format("000001")])
    emitted = Emitted(options.output)
    with emitted.locked():
        known = KnownLabels(
            paths,
            on,
            (layout.label, schema.label.name),
            layout.required,
            layout.optional,
            delimiter=schema.csv.delimiter,
            check=_checked(schema),
            progress=progress,
        )
        try:
            return _join(options, segments, schema, layout, on, known, emitted, progress)
        finally:
            known.close()


def _progress(reading: Reading, size: int) -> Progress:
    done = [0, 0]

    def progress(rows: int, more: int) -> None:
        done[0] += rows
        done[1] += more
        reading(done[0], done[1] / max(size, 1))

    return progress


def _checked(schema: Schema) -> Check:
    """Why preprocessing would reject what labels bring: the label itself, a weight, what the split is by."""
    named = {item.name: names_of(item, schema) for item in schema.items if item.raw is not None}

    def check(columns: Mapping[str, Sequence[bytes]]) -> dict[int, str]:
        cells = {
            name: [pa.array(columns[each], pa.binary()) for each in names]
            for name, names in named.items()
            if all(each in columns for each in names)
        }
        found = text.problems(cells, schema)
        return {row: f"{name}: {error.reason} ({error.detail})" for row, (name, error) in found.items()}

    return check


def _key_column(options: LabelOptions, schema: Schema, segment: StoredSegment, path: str) -> str:
    """The column that says which request a label is of."""
    on = options.on
    if on is None:
        first = ID in _header(path, schema.csv.delimiter) or schema.key is None
        on = ID if first else str(segment.columns[_key_place(schema, segment)])
    elif on in ("id", "request_id", "_id") and on not in segment.columns:
        on = ID
    if on not in segment.columns:
        raise UsageError(f"--on {on}: stored requests have no such column; they have {', '.join(segment.columns)}")
    return on


def _key_place(schema: Schema, segment: StoredSegment) -> int:
    if schema.key is None:
        raise UsageError("--on: the schema has no key; name the column that both have, or _id")
    name = str(schema.key.refs[0])
    known = schema.csv.columns
    if isinstance(schema.key.refs[0], int):
        name = known[schema.key.refs[0]] if known else schema.key.name
    return segment.columns.index(name)


def _header(path: str, delimiter: str) -> list[str]:
    with storage.wrap_errors(path), storage.open_read(path) as file:
        first = file.read(1 << 20).split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [name.strip().strip('"') for part in first.split(delimiter) for name in part.split(",")]


def _join(
    options: LabelOptions,
    segments: Sequence[StoredSegment],
    schema: Schema,
    layout: FileLayout,
    on: str,
    known: KnownLabels,
    emitted: Emitted,
    progress: Progress,
) -> Joined:
    number = emitted.next_number()
    final = os.path.join(options.output, options.name.format(f"{number:06d}"))
    if os.path.lexists(final):
        raise UsageError(f"{final}: exists already; give another --name")
    temporary = os.path.join(options.output, f".{secrets.token_hex(8)}.labelling")
    joined, given = Joined(), (layout.label, *layout.required, *layout.optional)
    write = _writer(schema, layout, known)
    with storage.wrap_errors(temporary):
        try:
            with open(temporary, "xb") as file:
                file.write(b"" if schema.csv.encoding == "utf-8" else MARK)
                if layout.header is not None:
                    file.write(text.header_line([n for n in layout.header if n not in known.lacking], schema.csv))
                for rows in labelled_rows(segments, on, known, given, emitted, joined, progress):
                    lines, written = write(rows)
                    file.write(lines)
                    emitted.add(written.token, written.places, written.codes)
                    joined.written += len(written.places)
                    joined.not_writable += len(rows.places) - len(written.places)
                file.flush()
                os.fsync(file.fileno())
            joined.count(known)
            if joined.written:
                emitted.commit(number, temporary, final)
                joined.file = final
        finally:
            storage.delete(temporary)
    return joined


def _writer(schema: Schema, layout: FileLayout, known: KnownLabels) -> Callable[[Labelled], tuple[bytes, Labelled]]:
    """Writes rows as lines; gives those that were written: not the ones whose line ends would not be read back."""
    columns = [name for name in layout.columns if name not in known.lacking]
    if layout.header is None:
        columns = [None if name in known.lacking else name for name in layout.columns]
    csv: CsvOptions = schema.csv
    named = [name for name in columns if name is not None]

    def write(rows: Labelled) -> tuple[bytes, Labelled]:
        if not csv.quoted_newlines:
            ends = [pc.match_substring(rows.columns[name], "\n").to_numpy(zero_copy_only=False) for name in named]
            several = np.any(ends, axis=0)
            rows = rows.where(~several) if several.any() else rows
        nothing = pa.array([b""] * len(rows.places), pa.binary())
        cells = [text.string_cells(nothing if name is None else rows.columns[name], csv) for name in columns]
        return text.lines(cells, csv)[0], rows

    return write


LABEL = "label"


def join_image_labels(
    options: LabelOptions, segments: Sequence[StoredSegment], schema: ImageSchema, progress: Progress
) -> Joined:
    """Links or copies each image whose label is known into the folder of its class.

    The files of labels have the column `label`, or of pairs a column for each image (`left`, `right`) with the identity
    that it shows. The same file in the same folder is there once, so a run may be repeated.

    Raises:
      UsageError: a label that cannot be a folder's name.
    """
    names = schema.image_names
    columns = (LABEL,) if len(names) == 1 else names
    emitted, joined = Emitted(options.output), Joined()
    with emitted.locked():
        paths, on = storage.expand(options.join), options.on or ID
        known = KnownLabels(paths, on, columns[:1], columns[1:], check=_no_folders, progress=progress)
        try:
            written: set[str] = set()
            with storage.wrap_errors(options.output):
                given = tuple(f"label {name}" for name in columns)
                for rows in labelled_rows(segments, on, known, given, emitted, joined, progress):
                    for name, of in zip(names, given, strict=True):
                        pairs = zip(rows.columns[name].to_pylist(), rows.columns[of].to_pylist(), strict=True)
                        for image, label in pairs:
                            folder = os.path.join(options.output, _folder_name(label))
                            _place(os.path.join(options.store, os.fsdecode(image)), folder)
                            written.add(folder)
                    emitted.add(rows.token, rows.places, rows.codes)
                    joined.written += len(rows.places)
                for folder in written:
                    storage.sync_folder(folder)
            joined.count(known)
            if joined.written:
                emitted.commit(emitted.next_number(), "", "")
                joined.file = options.output
            return joined
        finally:
            known.close()


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
