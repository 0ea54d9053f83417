"""Sketches of a column's values that can be merged: quantiles, and the number of distinct values.

All of them take arrays, so that C++ does the work per value. `Sizes` bounds their bytes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
from tfx_bsl.sketches import KmvSketch

KLL_K = 400  # rank error 0.68 % with 99 % confidence, in about 5 kB: `get_normalized_rank_error` of DataSketches
RANK_ERROR_SDS = 2.576  # standard deviations of a rank that its error with 99 % confidence is


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much a column's summary holds.

    Attributes:
      distinct: the hashes of the KMV sketch. It is exact up to this many distinct values; beyond, its standard error is
        1 / sqrt(distinct - 2).
      frequent: how many values are counted. Counts are exact as long as there are no more of them.
    """

    distinct: int
    frequent: int

    @staticmethod
    def of(columns: int) -> Sizes:
        """The sizes for this many columns: their product stays about the same."""
        return Sizes(1024 if columns <= 256 else 256, min(1024, max(64, 131_072 // max(columns, 1))))


class Quantiles:
    """A KLL sketch of float32 numbers (Karnin, Lang, Liberty: "Optimal quantile approximation in streams", 2016)."""

    def __init__(self, data: bytes | None = None) -> None:
        self._data = data

    @functools.cached_property
    def kll(self) -> datasketches.kll_floats_sketch:
        """The sketch, read at its first use."""
        if self._data is None:
            return datasketches.kll_floats_sketch(KLL_K)
        return datasketches.kll_floats_sketch.deserialize(self._data)

    def add(self, values: np.ndarray) -> None:
        """Adds float32 `[n]` without NaN. Sorted values take less than half the time."""
        self.kll.update(values)

    def merge(self, other: Quantiles) -> None:
        """Adds what the other one has seen."""
        self.kll.merge(other.kll)

    @property
    def exact(self) -> bool:
        """Whether it still holds every value."""
        return not self.kll.is_estimation_mode()

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """The values at ranks from 0 to 1, float64; there must be a value."""
        return np.array(self.kll.get_quantiles(ranks.tolist(), inclusive=True), np.float64)

    def below(self, points: np.ndarray, *, inclusive: bool = False) -> np.ndarray:
        """The fractions of values less than (or, `inclusive`, at most) each of some increasing float32 points."""
        return np.array(self.kll.get_cdf(points.tolist(), inclusive=inclusive)[:-1], np.float64)

    @property
    def rank_deviation(self) -> float:
        """The standard deviation of a fraction that `below` returns; 0 if it is exact."""
        return 0.0 if self.exact else float(self.kll.normalized_rank_error(False)) / RANK_ERROR_SDS

    def to_bytes(self) -> bytes:
        """The sketch in the format that DataSketches has in all its languages."""
        return bytes(self.kll.serialize())


class Distinct:
    """A KMV sketch: the smallest hashes of the values. The order of values and merges does not matter.

    Bar-Yossef et al., "Counting distinct elements in a data stream", 2002, as in TensorFlow Data Validation.
    """

    def __init__(self, size: int, data: bytes | None = None) -> None:
        self.size = size
        self._data = data

    @functools.cached_property
    def kmv(self) -> KmvSketch:
        """The sketch, read at its first use."""
        return KmvSketch(self.size) if self._data is None else KmvSketch.Deserialize(self._data)

    def add(self, values: pa.BinaryArray) -> None:
        """Adds strings, each once or more often."""
        self.kmv.AddValues(values)

    def merge(self, other: Distinct) -> None:
        """Adds what the other one has seen."""
        self.kmv.Merge(other.kmv)

    @property
    def count(self) -> int:
        """How many distinct values there are, about."""
        return int(self.kmv.Estimate())

    @property
    def exact(self) -> bool:
        """Whether it has held all hashes so far."""
        return self.count < self.size

    def to_bytes(self) -> bytes:
        """The sketch as tfx_bsl serializes it."""
        return bytes(self.kmv.Serialize())


@dataclasses.dataclass
class Frequent:
    """The most frequent values with their counts.

    Each count is too low by at most `error`, and so is that of a value that is not held (which counts as 0). `error` is
    at most the number of values divided by `limit` + 1; it is 0, and all counts are exact, if no more than `limit`
    values occurred. This is the summary of Misra and Gries, merged as in Agarwal et al., "Mergeable summaries", 2012.

    Attributes:
      limit: how many values are held.
      values: binary or float32, in any order.
      counts: int64.
      error: see above.
    """

    limit: int
    values: pa.Array
    counts: np.ndarray
    error: int = 0
    _ordered: tuple[np.ndarray, np.ndarray] | None = dataclasses.field(default=None, init=False, compare=False)

    @staticmethod
    def empty(limit: int, dtype: pa.DataType) -> Frequent:
        """Nothing counted yet."""
        return Frequent(limit, pa.nulls(0, dtype), np.empty(0, np.int64))

    def add(self, values: pa.Array, counts: np.ndarray) -> None:
        """Adds distinct values, each of which occurred this often."""
        values, counts = self._cut(values, counts)  # first: a column of unique values costs next to nothing
        if len(values) and len(self.values):
            both = pa.concat_arrays([self.values, values])
            values, counts = self._cut(*summed(both, np.concatenate([self.counts, counts])))
        if len(values):
            self.values, self.counts = values, counts
        self._ordered = None

    def merge(self, other: Frequent) -> None:
        """Adds what the other one has counted."""
        self.add(other.values, other.counts)
        self.error += other.error

    def top(self, most: int) -> list[tuple[Any, int]]:
        """The most frequent values and their counts, by descending count and then in ascending order."""
        places = np.arange(len(self.counts))
        if len(places) > most:
            places = np.flatnonzero(self.counts >= np.partition(self.counts, -most)[-most])
        counts = self.counts[places].tolist()
        held = zip(self.values.take(pa.array(places)).to_pylist(), counts, strict=True)
        return sorted(held, key=lambda item: (-item[1], item[0]))[:most]

    @property
    def in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """All numbers in order, float64, and how many are at most each of them."""
        if self._ordered is None:  # asked for several times once all is counted
            values = np.asarray(self.values, np.float64)
            order = np.argsort(values)
            self._ordered = values[order], np.cumsum(self.counts[order])
        return self._ordered

    @property
    def exact(self) -> bool:
        """Whether every value is held with its exact count."""
        return self.error == 0

    def _cut(self, values: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Subtracts from all counts what leaves at most `limit` of them, the next largest one; adds it to `error`."""
        if len(counts) <= self.limit:
            return values, counts
        surplus = int(np.partition(counts, -self.limit - 1)[-self.limit - 1])
        self.error += surplus
        kept = np.flatnonzero(counts > surplus)
        return values.take(pa.array(kept)), counts[kept] - surplus


def summed(values: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The distinct ones of some values, and the sums of their counts."""
    if pa.types.is_floating(values.type):  # sorted: Arrow's grouping takes ten times as long for some hundred values
        numbers = np.asarray(values)
        order = np.argsort(numbers)
        numbers = numbers[order]
        starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        return pa.array(numbers[starts]), np.add.reduceat(counts[order], starts)
    both = pa.table({"value": values, "count": counts})
    table = both.group_by("value", use_threads=False).aggregate([("count", "sum")])
    return table.column("value").combine_chunks(), np.asarray(table.column("count_sum"))
