"""The parts of a column's summary: moments, quantiles, frequent values and distinct values.

Each part has a bounded size, and two parts of the same kind can be merged. Values are added as an array of distinct
values and an array of their counts, so that NumPy and Arrow do the work for each value instead of Python.
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
    """The limits on the size of a column's summary.

    Attributes:
      distinct: the number of hashes that a `DistinctSketch` keeps. The estimated number of distinct values has a
        relative standard error of 1 / sqrt(distinct - 2).
      frequent: the number of values that `FrequentValues` keeps. All counts are exact if a column has at most this
        many distinct values.
    """

    distinct: int
    frequent: int

    @staticmethod
    def of(columns: int) -> Sizes:
        """Returns the limits for a table of `columns` columns. The more columns, the smaller each column's summary."""
        return Sizes(1024 if columns <= 256 else 256, min(1024, max(64, 131_072 // max(columns, 1))))


@dataclasses.dataclass
class Moments:
    """The count, mean, second and third central moment, and range of numbers.

    Two `Moments` are merged with equations 2.1 and 2.2 of Pébay, "Formulas for robust, one-pass parallel computation of
    covariances and arbitrary-order statistical moments", 2008.

    Attributes:
      count: how many numbers there are.
      total: the sum of the numbers, in float64.
      second: the sum of the squared deviations of the numbers from their mean.
      third: the sum of the cubed deviations of the numbers from their mean.
      low, high: the least and the greatest number. While `count` is 0, `low` is inf and `high` is -inf.
    """

    count: int = 0
    total: float = 0.0
    second: float = 0.0
    third: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers.

        Args:
          values: the numbers, float64 `[n]`.
          counts: how often each number occurs, int64 `[n]`.
        """
        if not len(values):
            return
        count, total = int(counts.sum()), float((values * counts).sum())  # a dot product would start BLAS's threads
        deviations = values - total / count
        squares = deviations * deviations * counts
        third = float((squares * deviations).sum())
        self.merge(Moments(count, total, float(squares.sum()), third, float(values.min()), float(values.max())))

    def merge(self, other: Moments) -> None:
        """Adds the numbers that another `Moments` describes, as if they had been added here one by one."""
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
        """The mean of the numbers, or 0 if there are no numbers."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The population standard deviation (divided by n, as in tf.Transform's z-score), or 0 without numbers."""
        return math.sqrt(max(self.second, 0.0) / self.count) if self.count else 0.0

    @property
    def skewness(self) -> float:
        """The skewness (third standardised moment) of the numbers, or 0 if all numbers are equal."""
        deviation = self.deviation
        scale = self.count * deviation**3 if deviation < 1e100 else math.inf
        return self.third / scale if scale > 0 else 0.0


KLL_K, _SHRINK = 400, 2 / 3  # numbers of the highest level, and how many times fewer each lower level holds
HELD = 1200  # numbers of all levels together: 5 kB
RANK_ERROR = 0.0068  # of a quantile, with 99 % confidence: DataSketches' for this k; half of it was measured here
RANK_DEVIATION = RANK_ERROR / 2.576  # the standard deviation of which that is the 99 % quantile


class Quantiles:
    """A deterministic KLL sketch, which estimates the quantiles of many numbers from a small sample of them.

    The sketch keeps numbers on levels. A number on level 3 stands for 2^3 = 8 of the numbers that were added. When a
    level is full, the sketch sorts the level's numbers, moves every second number up one level, and drops the others.
    The original algorithm (Karnin, Lang, Liberty: "Optimal quantile approximation in streams", 2016) tosses a coin to
    choose between the odd and the even places. Here a hash of the numbers replaces the coin, so that two runs of the
    same job write the same bytes.

    Attributes:
      items: the numbers that the sketch keeps, float32 `[held]`: first those of level 0, then those of level 1, and so
        on. Within a level they are in any order.
      sizes: how many numbers each level keeps.
    """

    def __init__(self, items: np.ndarray | None = None, sizes: Sequence[int] = ()) -> None:
        self.items = np.empty(0, np.float32) if items is None else items
        self.sizes = tuple(sizes)

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers.

        Args:
          values: the distinct numbers in rising order, float32 `[n]`.
          counts: how often each number occurs, int64 `[n]`.
        """
        # The numbers with their repetitions are never built. The cumulative counts say which distinct number is at a
        # place: with counts [3, 2], places 0 to 2 have the first number, and places 3 and 4 the second.
        places, sizes = places_held(int(counts.sum()))
        self.merge(Quantiles(values[np.searchsorted(np.cumsum(counts), places, "right")], sizes))

    def merge(self, other: Quantiles) -> None:
        """Merges another sketch into this sketch, then moves numbers up until at most `HELD` numbers are left."""
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
            # One number of each pair of neighbours moves up: the first if the coin is 0, the second if it is 1. Of an
            # odd count, the greatest number has no neighbour and stays on its level.
            pairs_end = len(full) // 2 * 2
            coin = int(mix(full.view(np.uint32).sum(dtype=np.uint64, keepdims=True) + np.uint64(level))[0]) & 1
            levels[level + 1] = np.concatenate([levels[level + 1], full[coin:pairs_end:2]])
            levels[level] = full[pairs_end:]
            size -= pairs_end // 2
        self.items, self.sizes = np.concatenate(levels), tuple(map(len, levels))

    def levels(self) -> list[np.ndarray]:
        """Returns one float32 array for each level, starting with level 0."""
        ends = itertools.accumulate(self.sizes)
        return [self.items[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]

    @property
    def weights(self) -> np.ndarray:
        """How many numbers each of `items` stands for, int64 `[held]`."""
        return np.repeat(np.int64(1) << np.arange(len(self.sizes)), self.sizes)


@functools.lru_cache(maxsize=64)
def places_held(count: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Returns which of `count` sorted numbers a sketch keeps, and how many numbers it keeps on each level.

    The sorted numbers are cut into blocks of 2^level numbers, beginning with the largest blocks; smaller blocks take
    the remainder. The sketch keeps the middle number of each block. A rank is therefore wrong by at most half a block.

    Args:
      count: how many sorted numbers there are.

    Returns:
      The places of the kept numbers, from 0 to `count` - 1, in the order of levels from 0 on; and the number of places
      on each level.
    """
    level = max(0, (count - 1) // KLL_K).bit_length()
    places, start = [], 0
    for at in range(level, -1, -1):
        blocks = (count - start) >> at
        places.append(start + (np.arange(blocks) << at) + ((1 << at) - 1) // 2)
        start += blocks << at
    return np.concatenate(places[::-1]), tuple(map(len, places[::-1]))


class DistinctSketch:
    """A KMV sketch ("k minimum values"), which estimates the number of distinct values.

    The sketch keeps the `size` smallest hashes of all values, and how often each of these values occurred. The closer
    together these hashes are, the more distinct values there are (Bar-Yossef et al., "Counting distinct elements in a
    data stream", 2002). The result does not depend on the order in which values are added and sketches are merged. The
    kept counts are exact: a hash that is among the smallest in the end was among the smallest at all times.

    Attributes:
      size: the largest number of hashes that the sketch keeps.
      hashes: the smallest hashes in rising order, uint64.
      counts: how often the value with each hash occurred, int64.
    """

    def __init__(self, size: int, hashes: np.ndarray | None = None, counts: np.ndarray | None = None) -> None:
        self.size = size
        self.hashes = np.empty(0, np.uint64) if hashes is None else hashes
        self.counts = np.empty(0, np.int64) if counts is None else counts

    def add(self, hashes: np.ndarray, counts: np.ndarray) -> None:
        """Adds values.

        Args:
          hashes: the hashes of the values, uint64 `[n]`.
          counts: how often each value occurs, int64 `[n]`.
        """
        if len(self.hashes) == self.size:
            small = hashes <= self.hashes[-1]
            hashes, counts = hashes[small], counts[small]
        if len(hashes):
            joined = summed(np.concatenate([self.hashes, hashes]), np.concatenate([self.counts, counts]))
            self.hashes, self.counts = (column[: self.size] for column in joined)

    @property
    def exact(self) -> bool:
        """Whether the sketch has kept the hashes of all values, so that `count` is exact."""
        return len(self.hashes) < self.size

    @property
    def count(self) -> int:
        """The number of distinct values: exact if `exact` is True, otherwise an estimate."""
        return len(self.hashes) if self.exact else int((self.size - 1) * 2**64 / int(self.hashes[-1]))


@dataclasses.dataclass
class FrequentValues:
    """The most frequent values with their counts.

    This is the summary of Misra and Gries, merged as in Agarwal et al., "Mergeable summaries", 2012. It keeps at most
    `limit` values. A count may be too low, by at most `error`; a value that was dropped occurred at most `error` times.
    If at most `limit` distinct values occurred, `error` is 0 and all counts are exact.

    Attributes:
      limit: the largest number of values that are kept.
      values: the kept values in any order: strings as an Arrow array, or float32 numbers as a NumPy array.
      counts: the count of each kept value, int64.
      error: the most by which a count is too low. At most the number of all values divided by `limit` + 1.
    """

    limit: int
    values: DistinctValues
    counts: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))
    error: int = 0

    def add(self, values: DistinctValues, counts: np.ndarray) -> None:
        """Adds distinct values and how often each value occurred, int64 `[n]`."""
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
        """Returns the `most` most frequent values with their counts. Equal counts are in rising order of the values."""
        places = np.arange(len(self.counts))
        if len(places) > most:
            places = np.flatnonzero(self.counts >= np.partition(self.counts, -most)[-most])
        values = self.values.take(places if isinstance(self.values, np.ndarray) else pa.array(places)).tolist()
        return sorted(zip(values, self.counts[places].tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))[
            :most
        ]

    def _cut(self, values: DistinctValues, counts: np.ndarray) -> tuple[DistinctValues, np.ndarray]:
        """Subtracts the (`limit` + 1)-th largest count from all counts, and keeps the values with a count above 0."""
        # Only counts above the subtracted count stay positive, and there are at most `limit` of them.
        if len(counts) <= self.limit:
            return values, counts
        surplus = int(np.partition(counts, -self.limit - 1)[-self.limit - 1])
        self.error += surplus
        above = np.flatnonzero(counts > surplus)
        return values.take(above if isinstance(values, np.ndarray) else pa.array(above)), counts[above] - surplus


def summed(values: DistinctValues, counts: np.ndarray) -> tuple[DistinctValues, np.ndarray]:
    """Adds up the counts of equal values.

    Returns:
      The distinct values (numbers are in rising order), and the sum of the counts of each value, int64.
    """
    if isinstance(values, np.ndarray):  # sorted: Arrow's grouping takes ten times as long for some hundred values
        order = np.argsort(values)
        values = values[order]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        return values[starts], np.add.reduceat(counts[order], starts)
    encoded = values.dictionary_encode()
    sums = np.bincount(np.asarray(encoded.indices), counts, len(encoded.dictionary))  # float64, exact up to 2^53
    return encoded.dictionary, sums.astype(np.int64)
