"""Joins labels that came later to stored requests: files that preprocessing takes, each row in one of them only."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.table import CsvOptions, Schema
from trainer.request_store.columns import ID, MARK
from trainer.request_store.emitted import Emitted
from trainer.request_store.file_layout import FileLayout, layout_of
from trainer.request_store.image_labels import join_image_labels
from trainer.request_store.joining import Joined, LabelOptions, labelled_rows
from trainer.request_store.kept_schemas import read_schema
from trainer.request_store.known_labels import KnownLabels, Label
from trainer.request_store.reading import StoredRow, StoredSegment, stored_segments


def join_labels(options: LabelOptions) -> Joined:
    """Joins labels to the stored requests that have none yet.

    Raises:
      UsageError: no store, or files of labels that lack a column.
      MillraceError: stored requests of several schemas, or damaged ones.
    """
    segments = stored_segments(options.store)
    if not segments:
        raise UsageError(f"{options.store}: holds no requests")
    schemas = Counter(segment.schema for segment in segments)
    newest = segments[-1]
    if any(segment.columns != newest.columns for segment in segments):
        raise MillraceError(
            f"{options.store}: holds requests of {len(schemas)} schemas with different columns; move the files of all "
            "but one elsewhere"
        )
    schema = read_schema(options.store, newest.schema)
    if not isinstance(schema, Schema):
        return join_image_labels(options, segments, schema)
    layout = layout_of(schema, newest.columns)
    on, label = _columns(options, schema, layout, newest)
    storage.check_apart(options.join, options.output, inside=[options.name.format("000001")])
    emitted = Emitted(options.output)
    paths = storage.expand(options.join)
    delimiter = schema.csv.delimiter if _uses(paths[0], schema.csv.delimiter) else ","
    with emitted.locked():
        known = KnownLabels(paths, on, (label, *layout.required), layout.optional, delimiter)
        try:
            return _join(options, segments, schema, layout, on, known, emitted)
        finally:
            known.close()


def _columns(options: LabelOptions, schema: Schema, layout: FileLayout, segment: StoredSegment) -> tuple[str, str]:
    """The column of the key, and the label's as the files of labels call it."""
    header = _header(storage.expand(options.join)[0], schema.csv.delimiter)
    on = options.on
    if on is None:
        on = ID if ID in header or schema.key is None else str(segment.columns[_key_place(schema, segment)])
    elif on in ("id", "request_id", "_id") and on not in segment.columns:
        on = ID
    if on not in segment.columns:
        raise UsageError(f"--on {on}: stored requests have no such column; they have {', '.join(segment.columns)}")
    if layout.label not in header and schema.label.name in header:
        return on, schema.label.name
    return on, layout.label


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


def _uses(path: str, delimiter: str) -> bool:
    with storage.wrap_errors(path), storage.open_read(path) as file:
        return delimiter.encode() in file.read(1 << 20).split(b"\n", 1)[0]


def _join(
    options: LabelOptions,
    segments: Sequence[StoredSegment],
    schema: Schema,
    layout: FileLayout,
    on: str,
    known: KnownLabels,
    emitted: Emitted,
) -> Joined:
    number = emitted.next_number()
    final = os.path.join(options.output, options.name.format(f"{number:06d}"))
    if os.path.lexists(final):
        raise UsageError(f"{final}: exists already; give another --name")
    temporary = os.path.join(options.output, f".{secrets.token_hex(8)}.labelling")
    joined = Joined(labels=known.rows, duplicate_labels=known.duplicates, conflicting_keys=known.conflicts)
    write = _writer(schema, layout, known)
    with storage.wrap_errors(temporary):
        try:
            with open(temporary, "xb") as file:
                file.write(b"" if schema.csv.encoding == "utf-8" else MARK)
                if layout.header is not None:
                    file.write(text.header_line([n for n in layout.header if n not in known.lacking], schema.csv))
                for token, row, label in labelled_rows(segments, on, known, emitted, joined):
                    line = write(row, label)
                    if line is None:
                        joined.not_writable += 1
                        continue
                    file.write(line)
                    emitted.add(token, row.place, label.values[0])
                    joined.written += 1
                file.flush()
                os.fsync(file.fileno())
            joined.unmatched_labels = known.unused()
            if joined.written:
                emitted.commit(number, temporary, final)
                joined.file = final
        finally:
            storage.delete(temporary)
    return joined


def _writer(schema: Schema, layout: FileLayout, known: KnownLabels) -> Callable[[StoredRow, Label], bytes | None]:
    """Writes a row with its label as a line; None where its line end would not be read back."""
    given = (layout.label, *layout.required, *layout.optional)
    columns = [name for name in layout.columns if name not in known.lacking]
    if layout.header is None:
        columns = [None if name in known.lacking else name for name in layout.columns]
    csv: CsvOptions = schema.csv
    quote, delimiter = csv.quote.encode(), csv.delimiter.encode()

    def write(row: StoredRow, label: Label) -> bytes | None:
        cells = {**row.cells, **dict(zip(given, label.values, strict=True))}
        values = [b"" if name is None else cells[name] for name in columns]
        if not csv.quoted_newlines and any(b"\n" in value for value in values):
            return None
        return delimiter.join(quote + value.replace(quote, quote + quote) + quote for value in values) + b"\n"

    return write
