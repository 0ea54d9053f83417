"""Joins labels that came later to stored requests: files that preprocessing takes, each row in one of them only."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.label.images import join_image_labels
from millrace.label.joining import Joined, Labelled, labelled_rows
from millrace.label.known_labels import Check, KnownLabels, Progress
from millrace.label.options import LabelOptions
from millrace.store.columns import ID, MARK, inputs_of
from millrace.store.emitted import Emitted
from millrace.store.file_layout import FileLayout, layout_of, names_of
from millrace.store.kept_schemas import read_schema
from millrace.store.reading import StoredSegment, stored_segments
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.table import CsvOptions, Schema

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
