"""Sketches of a column's values that can be merged: quantiles, and the number of distinct values.

All of them take arrays, so that C++ does the work per value. `Sizes` bounds their bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from tfx_bsl.sketches import KmvSketch

from schemas.spec.split_hash import mix

KLL_K, _SHRINK = 400, 2 / 3  # numbers of the highest level, and those of a level by those of the next higher one
HELD = 1200  # numbers of all levels together: 5 kB
RANK_ERROR = 0.0068  # of a quantile, with 99 % confidence: DataSketches' for this k; half of it was measured here
RANK_DEVIATION = RANK_ERROR / 2.576  # the standard deviation of which that is the 99 % quantile


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
    """A sample of float32 numbers, each of which stands for 2^level of them: a KLL sketch whose coins are no chance.

    Karnin, Lang, Liberty: "Optimal quantile approximation in streams", 2016. Where a level is full, every second of its
    numbers moves up one level. Which half, a hash of the numbers says, so that equal jobs write equal bytes. Of sorted
    numbers, one of each 2^level goes to its level at once.

    Attributes:
      items: float32 `[held]`, level by level from 0 on; in any order within a level.
      sizes: how many of them are on each level.
    """

    def __init__(self, items: np.ndarray | None = None, sizes: Sequence[int] = ()) -> None:
        self.items = np.empty(0, np.float32) if items is None else items
        self.sizes = tuple(sizes)

    def add(self, items: np.ndarray, sizes: Sequence[int]) -> None:
        """Adds what a sketch holds; of sorted numbers, `places_held` says which these are."""
        if not self.sizes:
            self.items, self.sizes = items, tuple(sizes)
            return
        empty = np.empty(0, np.float32)
        pairs = itertools.zip_longest(*(_by_level(*held) for held in ((self.items, self.sizes), (items, sizes))))
        levels = [np.concatenate([empty if side is None else side for side in pair]) for pair in pairs]
        held = len(self.items) + len(items)
        while held > HELD:
            top = len(levels) - 1
            level = next((i for i, some in enumerate(levels) if len(some) >= max(8, KLL_K * _SHRINK ** (top - i))), top)
            if level == top:
                levels.append(empty)
            some = np.sort(levels[level])
            pairs_end = len(some) // 2 * 2
            coin = int(mix(some.view(np.uint32).sum(dtype=np.uint64, keepdims=True) + np.uint64(level))[0]) & 1
            levels[level + 1] = np.concatenate([levels[level + 1], some[coin:pairs_end:2]])
            levels[level] = some[pairs_end:]
            held -= pairs_end // 2
        self.items, self.sizes = np.concatenate(levels), tuple(map(len, levels))

    def merge(self, other: Quantiles) -> None:
        """Adds what the other one has seen."""
        self.add(other.items, other.sizes)

    @property
    def exact(self) -> bool:
        """Whether it still holds every value."""
        return len(self.sizes) <= 1

    @property
    def weights(self) -> np.ndarray:
        """How many numbers each of `items` stands for, int64 `[held]`."""
        return np.repeat(np.int64(1) << np.arange(len(self.sizes)), self.sizes)


def _by_level(items: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return np.split(items, np.cumsum(sizes)[:-1])


@functools.lru_cache(maxsize=64)
def places_held(count: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Which of so many sorted numbers a sketch holds, level by level, and how many there are on each level.

    They are the middle ones of blocks of 2^level, the largest blocks first: the rank of none is off by more than half
    of a block.
    """
    level = max(0, (count - 1) // KLL_K).bit_length()
    found, start = [], 0
    for at in range(level, -1, -1):
        blocks = (count - start) >> at
        found.append(start + (np.arange(blocks) << at) + ((1 << at) - 1) // 2)
        start += blocks << at
    return np.concatenate(found[::-1]), tuple(map(len, found[::-1]))


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


Countable: TypeAlias = Any  # a pa.BinaryArray, or float32 numbers as NumPy has them


@dataclasses.dataclass
class Frequent:
    """The most frequent values with their counts.

    Each count is too low by at most `error`, and so is that of a value that is not held (which counts as 0). `error` is
    at most the number of values divided by `limit` + 1; it is 0, and all counts are exact, if no more than `limit`
    values occurred. This is the summary of Misra and Gries, merged as in Agarwal et al., "Mergeable summaries", 2012.

    Attributes:
      limit: how many values are held.
      values: strings, or float32 numbers as NumPy has them; in any order.
      counts: int64.
      error: see above.
    """

    limit: int
    values: Countable
    counts: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))
    error: int = 0

    def add(self, values: Countable, counts: np.ndarray) -> None:
        """Adds distinct values, each of which occurred this often."""
        values, counts = self._cut(values, counts)  # first: a column of unique values costs next to nothing
        if len(values) and len(self.values):
            join = np.concatenate if isinstance(values, np.ndarray) else pa.concat_arrays
            both = join([self.values, values])
            values, counts = self._cut(*summed(both, np.concatenate([self.counts, counts])))
        if len(values):
            self.values, self.counts = values, counts

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
    def exact(self) -> bool:
        """Whether every value is held with its exact count."""
        return self.error == 0

    def _cut(self, values: Countable, counts: np.ndarray) -> tuple[Countable, np.ndarray]:
        """Subtracts from all counts what leaves at most `limit` of them, the next largest one; adds it to `error`."""
        if len(counts) <= self.limit:
            return values, counts
        surplus = int(np.partition(counts, -self.limit - 1)[-self.limit - 1])
        self.error += surplus
        kept = np.flatnonzero(counts > surplus)
        return values.take(kept if isinstance(values, np.ndarray) else pa.array(kept)), counts[kept] - surplus


def summed(values: Countable, counts: np.ndarray) -> tuple[Countable, np.ndarray]:
    """The distinct ones of some values, and the sums of their counts."""
    if isinstance(values, np.ndarray):  # sorted: Arrow's grouping takes ten times as long for some hundred values
        order = np.argsort(values)
        values = values[order]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        return values[starts], np.add.reduceat(counts[order], starts)
    encoded = values.dictionary_encode()
    sums = np.bincount(np.asarray(encoded.indices), counts, len(encoded.dictionary))  # float64, exact up to 2^53
    return encoded.dictionary, sums.astype(np.int64)
