"""The parts of a summary: moments, quantiles, frequent values and distinct values, each mergeable and of bounded size.

All of them take arrays of distinct values with their counts, so that NumPy and Arrow do the work for each value.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from schemas.spec.split_hash import mix

DistinctValues: TypeAlias = Any  # a pa.BinaryArray, or a NumPy array of numbers


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much a column's summary holds.

    Attributes:
      distinct: the hashes that estimate the number of distinct values, with a standard error of 1 / sqrt(distinct - 2).
      frequent: how many values are counted. All counts are exact as long as there are no more of them.
    """

    distinct: int
    frequent: int

    @staticmethod
    def of(columns: int) -> Sizes:
        """Returns the sizes for so many columns: their product stays about the same."""
        return Sizes(1024 if columns <= 256 else 256, min(1024, max(64, 131_072 // max(columns, 1))))


@dataclasses.dataclass
class Moments:
    """Count, mean, central moments and range of numbers.

    Merged as in Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
    statistical moments", 2008, equations 2.1 and 2.2.

    Attributes:
      count: how many numbers there are.
      total: their sum, in float64: exact of whole numbers.
      second: the sum of their squared deviations from the mean.
      third: the sum of the cubes of these deviations.
      low, high: the least and the greatest number; infinite while there is none.
    """

    count: int = 0
    total: float = 0.0
    second: float = 0.0
    third: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers, float64 `[n]`, each with how often it occurs, int64 `[n]`."""
        if not len(values):
            return
        count, total = int(counts.sum()), float((values * counts).sum())  # a dot product would start BLAS's threads
        deviations = values - total / count
        squares = deviations * deviations * counts
        third = float((squares * deviations).sum())
        self.merge(Moments(count, total, float(squares.sum()), third, float(values.min()), float(values.max())))

    def merge(self, other: Moments) -> None:
        """Adds the numbers of other moments."""
        if not other.count:
            return
        before, added, count = self.count, other.count, self.count + other.count
        delta = other.mean - self.mean
        self.third += (
            other.third
            + delta**3 * before * added * (before - added) / count**2
            + 3 * delta * (before * other.second - added * self.second) / count
        )
        self.second += other.second + delta**2 * before * added / count
        self.total += other.total
        self.count = count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def mean(self) -> float:
        """The mean; 0 without any number."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the numbers as a population, as tf.Transform's z-score uses it; 0 without any."""
        return math.sqrt(max(self.second, 0.0) / self.count) if self.count else 0.0

    @property
    def skewness(self) -> float:
        """The third standardised moment; 0 where all numbers are equal."""
        deviation = self.deviation
        scale = self.count * deviation**3 if deviation < 1e100 else math.inf
        return self.third / scale if scale > 0 else 0.0


KLL_K, _SHRINK = 400, 2 / 3  # numbers of the highest level, and how many times fewer each lower level holds
HELD = 1200  # numbers of all levels together: 5 kB
RANK_ERROR = 0.0068  # of a quantile, with 99 % confidence: DataSketches' for this k; half of it was measured here
RANK_DEVIATION = RANK_ERROR / 2.576  # the standard deviation of which that is the 99 % quantile


class Quantiles:
    """A deterministic KLL sketch: float32 numbers, each of which stands for 2^level of them.

    Karnin, Lang, Liberty: "Optimal quantile approximation in streams", 2016. Where a level is full, every second of its
    numbers moves up one level. A hash of the numbers replaces the random coin that says which half, so that equal jobs
    write equal bytes. Of sorted numbers, one of each 2^level goes to its level at once.

    Attributes:
      items: float32 `[held]`, level by level from 0 on; in any order within a level.
      sizes: how many of them are on each level.
    """

    def __init__(self, items: np.ndarray | None = None, sizes: Sequence[int] = ()) -> None:
        self.items = np.empty(0, np.float32) if items is None else items
        self.sizes = tuple(sizes)

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers, float32 `[n]`, rising, each with how often it occurs, int64 `[n]`."""
        places, sizes = places_held(int(counts.sum()))
        self.merge(Quantiles(values[np.searchsorted(np.cumsum(counts), places, "right")], sizes))

    def merge(self, other: Quantiles) -> None:
        """Adds the numbers that the other sketch stands for."""
        if not self.sizes:
            self.items, self.sizes = other.items, other.sizes
            return
        empty = np.empty(0, np.float32)
        pairs = itertools.zip_longest(self.levels(), other.levels(), fillvalue=empty)
        levels = [np.concatenate(pair) for pair in pairs]
        size = len(self.items) + len(other.items)
        while size > HELD:
            top = len(levels) - 1
            level = next((i for i, part in enumerate(levels) if len(part) >= max(8, KLL_K * _SHRINK ** (top - i))), top)
            if level == top:
                levels.append(empty)
            full = np.sort(levels[level])
            pairs_end = len(full) // 2 * 2
            coin = int(mix(full.view(np.uint32).sum(dtype=np.uint64, keepdims=True) + np.uint64(level))[0]) & 1
            levels[level + 1] = np.concatenate([levels[level + 1], full[coin:pairs_end:2]])
            levels[level] = full[pairs_end:]
            size -= pairs_end // 2
        self.items, self.sizes = np.concatenate(levels), tuple(map(len, levels))

    def levels(self) -> list[np.ndarray]:
        """Returns the numbers of each level."""
        ends = itertools.accumulate(self.sizes)
        return [self.items[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    @property
    def weights(self) -> np.ndarray:
        """How many numbers each of `items` stands for, int64 `[held]`."""
        return np.repeat(np.int64(1) << np.arange(len(self.sizes)), self.sizes)


@functools.lru_cache(maxsize=64)
def places_held(count: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Returns the places of the sorted numbers that a sketch holds, level by level, and how many there are on each.

    They are the middle ones of blocks of 2^level, the largest blocks first: the rank of none is off by more than half
    of a block.
    """
    level = max(0, (count - 1) // KLL_K).bit_length()
    places, start = [], 0
    for at in range(level, -1, -1):
        blocks = (count - start) >> at
        places.append(start + (np.arange(blocks) << at) + ((1 << at) - 1) // 2)
        start += blocks << at
    return np.concatenate(places[::-1]), tuple(map(len, places[::-1]))


class DistinctSketch:
    """The smallest hashes of the values, each with the count of its value: a KMV sketch.

    Bar-Yossef et al., "Counting distinct elements in a data stream", 2002. The order of values and merges does not
    matter. A value whose hash is held was held from its first occurrence on, so its count is exact.

    Attributes:
      size: how many hashes are held at most.
      hashes: uint64, rising.
      counts: int64.
    """

    def __init__(self, size: int, hashes: np.ndarray | None = None, counts: np.ndarray | None = None) -> None:
        self.size = size
        self.hashes = np.empty(0, np.uint64) if hashes is None else hashes
        self.counts = np.empty(0, np.int64) if counts is None else counts

    def add(self, hashes: np.ndarray, counts: np.ndarray) -> None:
        """Adds values: their hashes, uint64 `[n]`, and how often each occurs, int64 `[n]`."""
        if len(self.hashes) == self.size:
            small = hashes <= self.hashes[-1]
            hashes, counts = hashes[small], counts[small]
        if len(hashes):
            joined = summed(np.concatenate([self.hashes, hashes]), np.concatenate([self.counts, counts]))
            self.hashes, self.counts = (column[: self.size] for column in joined)

    @property
    def exact(self) -> bool:
        """Whether the hashes of all values are held."""
        return len(self.hashes) < self.size

    @property
    def count(self) -> int:
        """The number of distinct values, or an estimate of it."""
        return len(self.hashes) if self.exact else int((self.size - 1) * 2**64 / int(self.hashes[-1]))


@dataclasses.dataclass
class FrequentValues:
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
    values: DistinctValues
    counts: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))
    error: int = 0

    def add(self, values: DistinctValues, counts: np.ndarray) -> None:
        """Adds distinct values, each of which occurred this often."""
        values, counts = self._cut(values, counts)  # first: a column of unique values costs next to nothing
        if len(values) and len(self.values):
            join = np.concatenate if isinstance(values, np.ndarray) else pa.concat_arrays
            both = join([self.values, values])
            values, counts = self._cut(*summed(both, np.concatenate([self.counts, counts])))
        if len(values):
            self.values, self.counts = values, counts

    def merge(self, other: FrequentValues) -> None:
        """Adds the counts of another summary."""
        self.add(other.values, other.counts)
        self.error += other.error

    def top(self, most: int) -> list[tuple[Any, int]]:
        """Returns the most frequent values and their counts, by falling count and then in rising order."""
        places = np.arange(len(self.counts))
        if len(places) > most:
            places = np.flatnonzero(self.counts >= np.partition(self.counts, -most)[-most])
        values = self.values.take(places if isinstance(self.values, np.ndarray) else pa.array(places)).tolist()
        return sorted(zip(values, self.counts[places].tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))[
            :most
        ]

    def _cut(self, values: DistinctValues, counts: np.ndarray) -> tuple[DistinctValues, np.ndarray]:
        """Subtracts from all counts what leaves at most `limit` of them, the next largest one; adds it to `error`."""
        if len(counts) <= self.limit:
            return values, counts
        surplus = int(np.partition(counts, -self.limit - 1)[-self.limit - 1])
        self.error += surplus
        above = np.flatnonzero(counts > surplus)
        return values.take(above if isinstance(values, np.ndarray) else pa.array(above)), counts[above] - surplus


def summed(values: DistinctValues, counts: np.ndarray) -> tuple[DistinctValues, np.ndarray]:
    """Adds up the counts of equal values, and returns the distinct values, numbers rising, and these sums."""
    if isinstance(values, np.ndarray):  # sorted: Arrow's grouping takes ten times as long for some hundred values
        order = np.argsort(values)
        values = values[order]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        return values[starts], np.add.reduceat(counts[order], starts)
    encoded = values.dictionary_encode()
    sums = np.bincount(np.asarray(encoded.indices), counts, len(encoded.dictionary))  # float64, exact up to 2^53
    return encoded.dictionary, sums.astype(np.int64)
