"""Finds the columns that a feature is read from. They may have the feature's name, or the names of the raw file.

For example, predictions may be made from a CSV file with the raw file's header, or from a DataFrame with a column for
each feature.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Container, Iterable, Sequence

from schemas.errors import UsageError
from schemas.spec.features import Feature, Label
from schemas.spec.forms import ColumnRef
from schemas.spec.table import Schema

ColumnLabel = str | int  # a column's name, or its position in a file without names


def find_columns(feature: Feature, schema: Schema, names: Container[ColumnLabel]) -> tuple[ColumnLabel, ...] | None:
    """Returns the columns that a feature is read from; None if they are not there.

    Args:
      feature: the feature.
      schema: its schema.
      names: the names of the columns that are there.

    Raises:
      UsageError: two columns that are there could be the feature's.
    """
    if feature.name not in names:
        there = (labels for labels in file_labels(feature, schema) if all(label in names for label in labels))
        return next(there, None)
    # A column has the feature's name. If there are also columns with the names of the raw file, and these names are not
    # those of features, it is unclear which columns to read.
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
    """Returns the message about data that has a feature's column twice: under the feature's name and under the
    file's."""
    return (
        f"the feature {item.name!r} is there under two names: {few_labels(labels)}. Leave the column out that is not "
        "meant, or rename it"
    )


def file_labels(feature: Feature, schema: Schema) -> list[tuple[ColumnLabel, ...]]:
    """Returns the names that a feature's columns may have in a file: the names in the raw file, and their positions."""
    columns = schema.csv.columns
    if columns is None:
        return [feature.refs]
    places = [ref if isinstance(ref, int) else columns.index(ref) for ref in feature.refs]
    return [tuple(columns[place] for place in places), tuple(places)]


def file_name(ref: ColumnRef, schema: Schema) -> str | None:
    """Returns the name of a column in the raw file; None if the column has no name."""
    if isinstance(ref, str):
        return ref
    columns = schema.csv.columns
    return columns[ref] if columns is not None and ref < len(columns) else None


def header_names(schema: Schema) -> dict[str, list[list[str]]]:
    """Returns the names that the columns of each feature and of the label may have in a header.

    A name is that of the raw file, or that of the feature. The column 3 of the vector `terrain` may also be called
    `terrain[3]`, or `terrain.3` as in stored requests. If the raw file has a column with a feature's name that another
    feature is read from, this name means only that column.

    Returns:
      By name of the feature or label: for each of its columns, the possible names.
    """
    in_file = {item.name: [file_name(ref, schema) for ref in item.refs] for item in schema.items}
    # By column name of the raw file: the features that are read from the column.
    readers: dict[str | None, set[str]] = {}
    for name, labels in in_file.items():
        for label in labels:
            readers.setdefault(label, set()).add(name)
    names: dict[str, list[list[str]]] = {}
    for item in schema.items:
        names[item.name] = columns = []
        for ref, label in zip(item.refs, in_file[item.name], strict=True):
            # The feature's own name for this column, unless the raw file has this name for a column of another feature.
            own = [item.name] if item.width == 1 else [f"{item.name}[{ref}]", f"{item.name}.{ref}"]
            aliases = [name for name in own if name != label and readers.get(name, set()) <= {item.name}]
            columns.append([*([] if label is None else [label]), *aliases])
    return names


def similar_name(names: Collection[ColumnLabel], labels: Iterable[ColumnLabel]) -> str:
    """Returns a hint about a column with almost the right name, such as `Age` for `age`; '' if there is no such column.

    Almost equal names differ in letter case, in spaces, or in code points that look the same.

    Args:
      names: the names of columns that are needed and not there.
      labels: the names of columns that are there.
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
    """Returns the names of columns that the schema does not declare.

    Such a column is read by no feature or label, and is not ignored explicitly.

    Args:
      names: the names of columns; a number is a position in the file.
      schema: the schema.
    """
    declared: set[ColumnLabel] = {item.name for item in schema.items}
    for item in schema.items:
        declared.update(item.refs)
    declared.update(name for columns in header_names(schema).values() for names in columns for name in names)
    if schema.csv.columns is not None:
        declared.update(range(len(schema.csv.columns)))
    return [str(name) for name in names if name not in declared]


def note_of_undeclared(names: Sequence[str]) -> str:
    """Returns the note that columns are ignored, because the schema does not declare them."""
    if len(names) == 1:
        return f"the column {few_labels(names)} is ignored: the schema does not declare it"
    return f"the columns {few_labels(names)} are ignored: the schema does not declare them"


def few_labels(labels: Sequence[ColumnLabel]) -> str:
    """Joins the names of columns. Of more than eight names, only the first six and the last are named.

    >>> few_labels(range(12))
    '0, 1, 2, 3, 4, 5, ..., 11'
    """
    shown = [repr(label) if len(str(label)) <= 60 else f"{str(label)[:60]!r}..." for label in labels]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:6], "...", shown[-1]])
