"""Samples whose values are as the schema means them: a bool is true or false, however it was written."""

from __future__ import annotations

import collections
import dataclasses

import pyarrow as pa

from schemas.comparison.samples import Sample, Strings
from schemas.spec.features import Bool
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

_WORDS = {b"1": b"true", b"0": b"false"}


def as_meant(sample: Sample, schema: AnySchema) -> Sample:
    """The sample with the spellings of bools joined. Its strings must be those of the schema's records."""
    bools = {item.name: item for item in schema.items if isinstance(item, Bool)} if isinstance(schema, Schema) else {}
    columns = dict(sample.columns)
    for name, item in bools.items():
        column = columns.get(name)
        if column is not None and isinstance(column.values, Strings):
            columns[name] = dataclasses.replace(column, values=_joined(column.values, item))
    return dataclasses.replace(sample, columns=columns)


def _joined(strings: Strings, item: Bool) -> Strings:
    counts: collections.Counter[bytes] = collections.Counter()
    values = list(strings.counts)
    for value, read in zip(values, item.read_values(pa.array(values, pa.binary())), strict=True):
        counts[_WORDS.get(read, value) if isinstance(read, bytes) else value] += strings.counts[value]
    lengths = [len(value) for value in counts]
    return dataclasses.replace(
        strings, counts=dict(counts), shortest=min(lengths, default=-1), longest=max(lengths, default=-1)
    )
