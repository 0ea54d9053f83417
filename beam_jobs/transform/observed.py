"""Finds outputs of the transform that are constant in every row of the train split.

This needs no read of its own and no analyzer. If a column holds a single value in a bundle, the bundle's train rows are
counted for that value. A column whose count equals the number of train rows is constant. For nearly all columns, the
first rows of a batch already differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from schemas.spec.table import SPLITS, Schema

# The stages of CountKeys ("<place in a vector> <value>", stage, name). They count written rows: of bundles in which the
# column holds a single value, and of bundles in which none of the feature's `values` occurs.
SAME, UNKNOWN = "*same", "*unknown"
# And of the rows that were looked at for it (place, stage, name): the distinct numbers as written, and as float32s.
NUMBERS_WRITTEN, NUMBERS_LEFT = "*numbers_written", "*numbers_left"
FIRST = 64  # rows; nearly every column that is not constant differs within them

Key = tuple[str, str, str]


@dataclasses.dataclass
class ConstantOutputs:
    """What holds for all train rows of the batches so far.

    Attributes:
      rows: how many train rows the batches have.
      shown: the keys that hold for all of them.
    """

    rows: int = 0
    shown: frozenset[Key] = frozenset()

    def add(self, rows: int, shown: Iterable[Key]) -> None:
        """Adds a batch: its number of train rows, and the keys that hold for all of them."""
        self.shown = frozenset(shown) if not self.rows else self.shown.intersection(shown)
        self.rows += rows

    def counts(self) -> Iterator[tuple[Key, int]]:
        """The keys, each with the number of rows that it holds for."""
        yield from ((key, self.rows) for key in self.shown)


@dataclasses.dataclass(frozen=True)
class WatchedOutputs:
    """The transform's outputs to observe.

    Attributes:
      names: the outputs; None: all numeric ones.
      listed_counts: for ids, how many of them stand for `values` that the schema lists.
    """

    names: frozenset[str] | None
    listed_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


def watched_outputs(schema: Schema) -> WatchedOutputs:
    """Every feature that is read from a column, and the label. Features derived from others would add nothing."""
    listed_counts = {item.name: len(item.listed) for item in schema.items if item.listed is not None}
    return WatchedOutputs(frozenset(item.name for item in schema.items if item.refs), listed_counts)


def train_rows(splits: np.ndarray) -> np.ndarray:
    """The indices of the rows of the train split."""
    return np.flatnonzero(splits == SPLITS.index("train"))


def observe_stored(
    batch: pa.RecordBatch, splits: np.ndarray, watched: WatchedOutputs, observed: ConstantOutputs
) -> None:
    """Adds the train rows of a transformed batch."""
    rows = train_rows(splits)
    if len(rows):
        observed.add(len(rows), _stored(batch, rows, watched))


def _stored(batch: pa.RecordBatch, rows: np.ndarray, watched: WatchedOutputs) -> Iterator[Key]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = _matrix(column) if watched.names is None or name in watched.names else None
        if values is None:
            continue
        listed_count = watched.listed_counts.get(name)
        if listed_count is not None and not (
            (values[rows[:FIRST]] < listed_count).any() or (values[rows] < listed_count).any()
        ):
            yield "0", UNKNOWN, name
        for place in np.flatnonzero(_same(values, rows)).tolist():
            yield f"{place} {values[rows[0], place] + 0}", SAME, name  # + 0: -0.0 is 0.0


def _matrix(column: pa.Array) -> np.ndarray | None:
    """A numeric column as `[rows, k]`; None if it is not numeric, or if the rows' lengths differ."""
    kind = column.type.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    lengths = np.diff(np.asarray(column.offsets))
    if column.null_count or not lengths[0] or (lengths != lengths[0]).any():
        return None
    return np.asarray(column.flatten()).reshape(len(column), -1)


def _same(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which columns of `[rows, k]` are constant in the given rows. bool `[k]`."""
    first = values[rows[:FIRST]]
    same = (first == first[0]).all(axis=0)
    places = np.flatnonzero(same)
    if len(places) and len(rows) > FIRST:
        same[places] = (values[np.ix_(rows, places)] == first[0, places]).all(axis=0)
    return same
