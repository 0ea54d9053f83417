"""What the columns of data are called that a feature is read from: as the feature itself, or as in the raw file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from schemas.errors import UsageError
from schemas.spec.features import Feature, Label
from schemas.spec.forms import ColumnRef
from schemas.spec.table import Schema

ColumnLabel = str | int  # of a column: its name, or its position in a file without names


def find_columns(feature: Feature, schema: Schema, names: Container[ColumnLabel]) -> tuple[ColumnLabel, ...] | None:
    """The columns of data that a feature is made of; None if they are not there.

    Raises:
      UsageError: it could be either of two.
    """
    own = feature.name in names
    for labels in file_labels(feature, schema):
        if labels == (feature.name,) or not all(label in names for label in labels):
            continue
        if own and any(feature.name in item.refs for item in schema.items if item is not feature):
            raise UsageError(
                f"{feature.name!r} is the name of a feature and of another column of the raw file; leave out "
                f"{few_labels(labels)}, or rename {feature.name!r}"
            )
        return (feature.name,) if own else labels
    return (feature.name,) if own else None


def file_labels(feature: Feature, schema: Schema) -> list[tuple[ColumnLabel, ...]]:
    """What the columns that a feature is read from may be called: by name, and by position."""
    columns = schema.csv.columns
    if columns is None:
        return [feature.refs]
    places = [ref if isinstance(ref, int) else columns.index(ref) for ref in feature.refs]
    return [tuple(columns[place] for place in places), tuple(places)]


def header_names(item: Feature | Label, ref: ColumnRef, schema: Schema) -> list[str]:
    """What a column may be called in a header, its own name first."""
    columns = schema.csv.columns
    named = columns[ref] if isinstance(ref, int) and columns is not None and ref < len(columns) else ref
    own = [named] if isinstance(named, str) else []
    return [*own, *([item.name] if item.width == 1 else [f"{item.name}[{ref}]", f"{item.name}.{ref}"])]


def undeclared(names: Iterable[ColumnLabel], schema: Schema) -> list[str]:
    """The names of columns that the schema does not declare: no feature, the label or an ignored one is read from them.

    A number is a position.
    """
    declared: set[ColumnLabel] = {item.name for item in schema.items}
    for item in schema.items:
        declared.update(item.refs)
        declared.update(name for ref in item.refs for name in header_names(item, ref, schema))
    if schema.csv.columns is not None:
        declared.update(range(len(schema.csv.columns)))
    return [str(name) for name in names if name not in declared]


def note_of_undeclared(names: Sequence[str]) -> str:
    """The note that columns are ignored."""
    if len(names) == 1:
        return f"the column {few_labels(names)} is ignored: the schema does not declare it"
    return f"the columns {few_labels(names)} are ignored: the schema does not declare them"


def few_labels(labels: Sequence[ColumnLabel]) -> str:
    """Names of columns, some of them where there are many."""
    shown = [repr(label) if len(str(label)) <= 60 else f"{str(label)[:60]!r}..." for label in labels]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:6], "...", shown[-1]])
