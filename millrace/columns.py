"""The columns of a request, found by the names of a schema's features, or by the names that the raw file gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.errors import UsageError
from schemas.spec.features import Feature
from schemas.spec.strict import ColumnRef
from schemas.spec.table import Schema

Label = str | int  # of a column: its name, or its position in a file without names


def feature_values(data: Any, schema: Schema) -> dict[str, list[Any]]:
    """The raw values of what a model takes, by feature; of a vector or a one_hot group a list or tuple for each row.

    Args:
      data: a list of dicts, a dict of columns, or a DataFrame. A feature is found under its own name, or else under the
        columns of the raw file that it is read from: names, or positions as pandas numbers columns without names.
      schema: of the data that the model was trained on.

    Returns:
      Lists of one length. A key that is not there is left out.

    Raises:
      UsageError: `data` is none of these, a feature is not there or could be either of two columns, or columns are of
        different lengths.
    """
    names, column = _table(data)
    features = [*schema.inputs, *([schema.key] if schema.key else [])]
    features = [feature for feature in features if feature.raw is not None]
    if names is None:
        return {feature.name: [] for feature in features}
    found = {feature.name: _find(feature, schema, names) for feature in features}
    lacking = [f for f in features if found[f.name] is None and f is not schema.key]
    if lacking:
        asked, needed = (", ".join(f.name for f in some) for some in (lacking, features))
        expected = "".join(f"\n{_expected(f, schema)}" for f in lacking[:5])
        raise UsageError(f"no column {asked}; the model needs {needed}; found {_some(list(names))}{expected}")
    read = {label: column(label) for labels in found.values() for label in labels or ()}
    lengths = {str(label): len(values) for label, values in read.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"columns of different lengths: {', '.join(f'{n} {size:,}' for n, size in lengths.items())}")
    values = {}
    for feature in features:
        labels = found[feature.name]
        if labels == (feature.name,) or (labels and feature.raw and feature.raw.width is None):
            values[feature.name] = read[labels[0]]
        elif labels:
            values[feature.name] = list(zip(*(read[label] for label in labels), strict=True))
    return values


def _table(data: Any) -> tuple[Mapping[Any, None] | None, Callable[[Label], list[Any]]]:
    """The columns' names, and a column by its name; no names where there are no rows to tell them.

    A row of several that leaves a column out holds None.
    """
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return dict.fromkeys(data if isinstance(data, Mapping) else data.columns), lambda label: list(data[label])
    rows = list(data)
    if not all(isinstance(row, Mapping) for row in rows):
        raise UsageError("rows are a list of dicts, a dict of columns or a DataFrame")
    names = {name: None for row in rows for name in row}
    return names if rows else None, lambda label: [row.get(label) for row in rows]


def _find(feature: Feature, schema: Schema, names: Mapping[Any, None]) -> tuple[Label, ...] | None:
    """The columns of the data that a feature is made of."""
    own = feature.name in names
    for labels in _raw_labels(feature, schema):
        if labels == (feature.name,) or not all(label in names for label in labels):
            continue
        if own and any(feature.name in item.refs for item in schema.items if item is not feature):
            raise UsageError(
                f"{feature.name!r} is the name of a feature and of another column of the raw file; leave out "
                f"{_some(labels)}, or rename {feature.name!r}"
            )
        return (feature.name,) if own else labels
    return (feature.name,) if own else None


def _raw_labels(feature: Feature, schema: Schema) -> list[tuple[Label, ...]]:
    """What the columns that a feature is read from may be called: by name, and by position."""
    columns = schema.csv.columns
    if columns is None:
        return [feature.refs]
    places = [ref if isinstance(ref, int) else columns.index(ref) for ref in feature.refs]
    return [tuple(columns[place] for place in places), tuple(places)]


def _expected(feature: Feature, schema: Schema) -> str:
    """What would do for a feature that is not there."""
    names = _raw_labels(feature, schema)[0]
    size = f" of lists of {feature.width} values" if feature.raw and feature.raw.width is not None else ""
    columns = "" if names == (feature.name,) else f", or the file's {_some(names)}"
    return f"{feature.name}: expected one column {feature.name!r}{size}{columns}"


def _some(labels: Sequence[ColumnRef]) -> str:
    """Names of columns, some of them where there are many."""
    shown = [repr(label) for label in labels]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:6], "...", shown[-1]])
