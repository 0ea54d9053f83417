"""Finds the columns of data that a feature is read from, under the feature's name or that of the raw file."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Container, Iterable, Sequence

from schemas.errors import UsageError
from schemas.spec.features import Feature, Label
from schemas.spec.forms import ColumnRef
from schemas.spec.table import Schema

ColumnLabel = str | int  # of a column: its name, or its position in a file without names


def find_columns(feature: Feature, schema: Schema, names: Container[ColumnLabel]) -> tuple[ColumnLabel, ...] | None:
    """Returns the columns of data that a feature is made of; None if they are not there.

    Raises:
      UsageError: it could be either of two.
    """
    if feature.name not in names:
        there = (labels for labels in file_labels(feature, schema) if all(label in names for label in labels))
        return next(there, None)
    features = {item.name for item in schema.items}
    for labels in file_labels(feature, schema):
        if labels == (feature.name,) or not all(label in names for label in labels):
            continue
        if any(feature.name in item.refs for item in schema.items if item is not feature):
            raise UsageError(
                f"{feature.name!r} is the name of a feature and of another column of the raw file; leave out "
                f"{few_labels(labels)}, or rename {feature.name!r}"
            )
        if not features.issuperset(labels):
            raise UsageError(both_names(feature, [feature.name, *labels]))
    return (feature.name,)


def both_names(item: Feature | Label, labels: Sequence[ColumnLabel]) -> str:
    """Returns the message about data that has a feature's columns under two names."""
    return (
        f"the feature {item.name!r} is there under two names: {few_labels(labels)}. Leave the column out that is not "
        "meant, or rename it"
    )


def file_labels(feature: Feature, schema: Schema) -> list[tuple[ColumnLabel, ...]]:
    """Returns the names that a feature's columns may have: those of the file, and their positions."""
    columns = schema.csv.columns
    if columns is None:
        return [feature.refs]
    places = [ref if isinstance(ref, int) else columns.index(ref) for ref in feature.refs]
    return [tuple(columns[place] for place in places), tuple(places)]


def file_name(ref: ColumnRef, schema: Schema) -> str | None:
    """Returns the name that the raw file gives a column; None if it has none."""
    if isinstance(ref, str):
        return ref
    columns = schema.csv.columns
    return columns[ref] if columns is not None and ref < len(columns) else None


def header_names(schema: Schema) -> dict[str, list[list[str]]]:
    """Returns the names that each column of each item may have in a header: that of the raw file, or its feature's.

    The column 3 of a vector is `terrain[3]`, or `terrain.3` as in stored requests. A feature's name that the raw file
    gives another feature's column is that column alone.
    """
    in_file = {item.name: [file_name(ref, schema) for ref in item.refs] for item in schema.items}
    readers: dict[str | None, set[str]] = {}
    for name, labels in in_file.items():
        for label in labels:
            readers.setdefault(label, set()).add(name)
    names: dict[str, list[list[str]]] = {}
    for item in schema.items:
        names[item.name] = columns = []
        for ref, label in zip(item.refs, in_file[item.name], strict=True):
            own = [item.name] if item.width == 1 else [f"{item.name}[{ref}]", f"{item.name}.{ref}"]
            aliases = [name for name in own if name != label and readers.get(name, set()) <= {item.name}]
            columns.append([*([] if label is None else [label]), *aliases])
    return names


def similar_name(names: Collection[ColumnLabel], labels: Iterable[ColumnLabel]) -> str:
    """Returns a hint about a column whose name differs only in letter case, spaces or code points; '' if there is none.

    Args:
      names: those that are lacking.
      labels: those that are there.
    """
    lacking = {_folded(name): name for name in names if isinstance(name, str)}
    for label in labels:
        if not isinstance(label, str):
            continue
        name = lacking.get(_folded(label))
        if name is None or label == name:
            continue
        if unicodedata.normalize("NFC", label) == unicodedata.normalize("NFC", name):
            spelt = f"{label!a}, which looks like {name!a} and has other code points"
        else:
            spelt = f"{label!r}, which is not {name!r}"
        return f". It has {spelt}: rename one of them"
    return ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip().casefold()


def undeclared(names: Iterable[ColumnLabel], schema: Schema) -> list[str]:
    """Returns the names of columns that the schema does not declare: no feature, the label or an ignored one is read
    from them.

    A number is a position.
    """
    declared: set[ColumnLabel] = {item.name for item in schema.items}
    for item in schema.items:
        declared.update(item.refs)
    declared.update(name for columns in header_names(schema).values() for names in columns for name in names)
    if schema.csv.columns is not None:
        declared.update(range(len(schema.csv.columns)))
    return [str(name) for name in names if name not in declared]


def note_of_undeclared(names: Sequence[str]) -> str:
    """Returns the note that columns are ignored."""
    if len(names) == 1:
        return f"the column {few_labels(names)} is ignored: the schema does not declare it"
    return f"the columns {few_labels(names)} are ignored: the schema does not declare them"


def few_labels(labels: Sequence[ColumnLabel]) -> str:
    """Joins the names of columns, of many only some.

    >>> few_labels(range(12))
    '0, 1, 2, 3, 4, 5, ..., 11'
    """
    shown = [repr(label) if len(str(label)) <= 60 else f"{str(label)[:60]!r}..." for label in labels]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:6], "...", shown[-1]])
