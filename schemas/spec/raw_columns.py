"""The raw columns of a dataset: what a decoded batch holds and what a serving request sends."""

from __future__ import annotations

import dataclasses
from typing import Literal

from schemas.spec.features import Category, CategoryLabel, Cross, Feature, Ignore, Key, Label, Numeric, OneHot, Weight
from schemas.spec.table import Schema

OFFSET = "_offset"  # int64: the record's first byte in its (decompressed) file
SPLIT = "_split"  # int8: index into schemas.spec.table.SPLITS


@dataclasses.dataclass(frozen=True)
class RawColumn:
    """One raw feature.

    float32 is `[batch]`, or `[batch, width]` where `width` is given; NaN is missing.
    string is `[batch]`, untrimmed as it stands in the file; '' and the schema's tokens are missing.
    """

    name: str
    dtype: Literal["float32", "string"]
    width: int | None = None


def raw_column(item: Feature | Label) -> RawColumn | None:
    """The raw column that a feature or the label is read into; None for a cross and for what is ignored."""
    match item:
        case Cross() | Ignore():
            return None
        case OneHot():
            return RawColumn(item.name, "float32", len(item.refs))
        case Numeric():
            return RawColumn(item.name, "float32", None if item.columns is None else len(item.refs))
        case Weight():
            return RawColumn(item.name, "float32")
        case Category() | CategoryLabel() | Key():
            return RawColumn(item.name, "string")
        case _:
            return RawColumn(item.name, "float32" if item.kind == "numeric" else "string")


def raw_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Every raw column: the features in the schema's order, then the label."""
    columns = (raw_column(item) for item in (*schema.features, schema.label))
    return tuple(c for c in columns if c is not None)


def serving_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """What a request sends: the inputs, and the key where there is one. Never the label or the weight."""
    columns = (raw_column(f) for f in (*schema.inputs, *((schema.key,) if schema.key else ())))
    return tuple(c for c in columns if c is not None)
