"""Names the raw columns of records that are profiled, and encodes their values, a batch at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from schemas.csv import values as csv_values
from schemas.spec.features import CategoryLabel, Feature, Key, Label, OneHot, ReadAsNumbers, Weight
from schemas.spec.table import Schema, raw_columns

Role = Literal["feature", "label", "weight", "key"]
RAW = "_raw:"  # how the columns are called that travel with a batch for the statistics alone
POOLED = 4096  # a vector of more columns is described as one column


@dataclasses.dataclass(frozen=True)
class ProfiledColumn:
    """A raw column, a list column of a batch.

    Attributes:
      name: the column's name in a batch, without RAW.
      reads: what its lists hold: numbers, one string, or the 0s and 1s of a one-hot group.
      kind: what the schema calls it, such as numeric.
      names: what is described: one name, or one for each number of a vector.
      values: the values that the places of a one-hot group stand for.
      missing: the strings that mean a missing value.
    """

    name: str
    reads: Literal["numbers", "strings", "one_hot"]
    kind: str
    role: Role
    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def columns_of(schema: Schema) -> tuple[ProfiledColumn, ...]:
    """Returns the columns of rows: every feature that is decoded, then the label. `ignore`d columns are not."""
    return tuple(_columns(schema))


def _columns(schema: Schema) -> Iterator[ProfiledColumn]:
    for item in schema.items:
        if item.raw is None:
            continue
        refs = tuple(str(ref) for ref in item.refs)
        role = _role(item, schema)
        if isinstance(item, OneHot):
            yield ProfiledColumn(item.name, "one_hot", item.kind, role, (item.name,), values=refs)
        elif isinstance(item, ReadAsNumbers):
            vector = 1 < item.width <= POOLED
            names = tuple(f"{item.name}[{ref}]" for ref in refs) if vector else (item.name,)
            yield ProfiledColumn(item.name, "numbers", item.kind, role, names)
        else:  # a category label is stored as its class: the tokens of missing values have been dealt with
            missing = () if isinstance(item, CategoryLabel) else item.tokens(schema.csv.missing)
            yield ProfiledColumn(item.name, "strings", item.kind, role, (item.name,), missing=missing)


def _role(item: Feature | Label, schema: Schema) -> Role:
    if item is schema.label:
        return "label"
    return "key" if isinstance(item, Key) else "weight" if isinstance(item, Weight) else "feature"


def raw_names(schema: Schema) -> tuple[str, ...]:
    """Returns the names of raw columns while they travel beside the features."""
    return tuple(RAW + column.name for column in raw_columns(schema))


def raw_apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Splits a batch into the columns that are not RAW, and those that are, under their own names."""
    raw = [name for name in batch.schema.names if name.startswith(RAW)]
    rest = batch.select([name for name in batch.schema.names if not name.startswith(RAW)])
    return rest, batch.select(raw).rename_columns([name.removeprefix(RAW) for name in raw])


class EncodedBatch:
    """The raw columns of records, each of them encoded once for all who look at it.

    Attributes:
      rows: how many records there are.
      values: the values of each column, of all records together.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows = batch.num_rows
        self.values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        self._encoded: dict[str, csv_values.Distinct] = {}

    @staticmethod
    def of(batch: pa.RecordBatch | EncodedBatch) -> EncodedBatch:
        """Makes one of a batch, if it is none yet."""
        return batch if isinstance(batch, EncodedBatch) else EncodedBatch(batch)

    def matrix(self, name: str) -> np.ndarray:
        """Returns a column of numbers, float32 `[rows, width]`."""
        return np.asarray(self.values[name]).astype(np.float32, copy=False).reshape(self.rows, -1)

    def encoded(self, column: ProfiledColumn) -> csv_values.Distinct:
        """Returns a column's distinct strings, or the values of a one-hot group, with the place of each row's."""
        if column.name not in self._encoded:
            self._encoded[column.name] = self._encode(column)
        return self._encoded[column.name]

    def _encode(self, column: ProfiledColumn) -> csv_values.Distinct:
        if column.reads == "one_hot":
            ones: np.ndarray = self.matrix(column.name) == 1
            names = pa.array([value.encode() for value in column.values], pa.binary())
            return csv_values.Distinct(ones.argmax(1).astype(np.int32), names, names, np.zeros(len(names), bool))
        return csv_values.distinct(self.values[column.name], csv_values.missing_tokens(column.missing).tokens)
