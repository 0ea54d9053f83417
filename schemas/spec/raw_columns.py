"""The raw columns of a dataset: what a decoded batch holds and what a serving request sends."""

from __future__ import annotations

from schemas.spec.forms import RawColumn
from schemas.spec.table import Schema

OFFSET = "_offset"  # int64: the record's first byte in its (decompressed) file
SPLIT = "_split"  # int8: index into schemas.spec.table.SPLITS


def raw_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Every raw column: the features in the schema's order, then the label."""
    return tuple(item.raw for item in schema.items if item.raw is not None)


def serving_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """What a request sends: the inputs, and the key where there is one. Never the label or the weight."""
    sent = (*schema.inputs, *((schema.key,) if schema.key else ()))
    return tuple(feature.raw for feature in sent if feature.raw is not None)
