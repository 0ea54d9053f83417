"""The files that a schema's preprocessing takes: which column stands where."""

from __future__ import annotations

import dataclasses

from millrace.store.columns import column_names
from schemas.errors import UsageError
from schemas.spec.features import Feature, Ignore, Label
from schemas.spec.table import Schema


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
