"""Columns of a file whose cells are handed through as they stand there, whatever the schema reads of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.csv.file import CsvFile
from schemas.errors import UsageError
from schemas.spec.strict import ColumnRef
from schemas.spec.table import Schema

_SHOWN = 8


def cell_position(file: CsvFile, schema: Schema, name: str) -> int:
    """A column's position, by its name in the file (a number where it has none), or by that of the schema's item.

    Raises:
        UsageError: the file has no such column, or the item is read from several.
    """
    names = column_names(file, schema)
    if name in names:
        return names.index(name)
    item = next((item for item in schema.items if item.name == name), None)
    if item is not None and len(item.refs) > 1:
        raise UsageError(f"{file.path}: {name!r} is read from {len(item.refs)} columns; name one column of the file")
    place = next(_places(item.refs, file, schema, names), -1) if item is not None else -1
    if not 0 <= place < file.num_columns:
        shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
        raise UsageError(f"{file.path}: has no column {name!r}; it has {shown or 'none'}")
    return place


def column_names(file: CsvFile, schema: Schema) -> tuple[str, ...]:
    """The names of a file's columns in their order: of its header, or of the schema; else their numbers in it."""
    if file.header is not None:
        return file.header
    width = schema.csv.width or file.num_columns
    names = schema.csv.columns or tuple(map(str, range(width)))
    if file.num_columns == len(names) - 1:  # a file for prediction without the column of the label
        (label,) = schema.label.refs
        lacking = names.index(label) if isinstance(label, str) else label
        return (*names[:lacking], *names[lacking + 1 :])
    return tuple(names)


def _places(refs: Sequence[ColumnRef], file: CsvFile, schema: Schema, names: Sequence[str]) -> Iterator[int]:
    for ref in refs:
        if isinstance(ref, int) and file.header is not None:
            yield ref
            continue
        name = ref if isinstance(ref, str) else schema.csv.columns[ref] if schema.csv.columns else str(ref)
        yield names.index(name) if name in names else -1
