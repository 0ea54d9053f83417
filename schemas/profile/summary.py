"""Summarizes a column of some records in bounded memory. Summaries take more values, merge, and have a distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.profile.duplicates import value_hashes
from schemas.profile.sketches import (
    RANK_DEVIATION,
    DistinctSketch,
    DistinctValues,
    FrequentValues,
    Moments,
    Quantiles,
    Sizes,
    summed,
)
from schemas.spec.split_hash import GOLDEN, mix

BINS = 20  # of a histogram
CUT = 100  # bytes: longer strings are cut before they are counted as frequent values


class Summary:
    """What a column of numbers or of strings holds.

    >>> summary = Summary(Sizes.of(1), numeric=True)
    >>> summary.add(pa.array([3.0, 1.0, 3.0, None], pa.float32()))
    >>> summary.count, summary.missing, summary.moments.high, summary.frequent.top(1)
    (3, 1, 3.0, [(3.0, 2)])

    While all values are known with their counts, the sketches would follow from these, and are empty.

    Attributes:
      numeric: whether it is of float32 numbers; else of strings.
      missing: how many values are missing.
      moments: of the numbers, or of the strings' lengths in characters (in bytes where they are not UTF-8).
      zeros: how many numbers are 0, or strings empty.
      frequent: the most frequent values.
      sample: a sketch of the numbers' quantiles.
      hashes: a sketch of the distinct values.
      cut: whether a string was longer than CUT bytes, so that `frequent` holds its beginning.
    """

    def __init__(self, sizes: Sizes, *, numeric: bool) -> None:
        self.numeric = numeric
        self.missing = self.zeros = 0
        self.moments = Moments()
        self.frequent = FrequentValues(sizes.frequent, np.empty(0, np.float32) if numeric else pa.nulls(0, pa.binary()))
        self.sample = Quantiles()
        self.hashes = DistinctSketch(sizes.distinct)
        self.cut = False

    def add(self, values: pa.Array) -> None:
        """Adds values: float32 (null and NaN are missing), or binary (null is missing)."""
        if self.numeric:
            (counted,) = counted_rows(np.asarray(values.cast(pa.float32())).reshape(1, -1))
            self.add_counted(*counted, missing=len(values) - int(counted[1].sum()))
        else:
            present = values.drop_null()
            self.add_counted(*summed(present, np.ones(len(present))), missing=values.null_count)

    def add_counted(self, values: DistinctValues, counts: np.ndarray, *, missing: int = 0) -> None:
        """Adds distinct values.

        Args:
          values: float32 `[n]`, rising; or binary `[n]`.
          counts: int64 `[n]`: how often each of them occurred, once or more often.
          missing: how many are missing beside them.
        """
        self.missing += missing
        if not len(values):
            return
        before, added = self.counted, (values, counts)
        sizes = values.astype(np.float64) if self.numeric else np.asarray(_lengths(values), np.float64)
        self.moments.add(sizes, counts)
        self.zeros += int(counts[sizes == 0].sum())
        if not self.numeric and pc.max(pc.binary_length(values)).as_py() > CUT:
            self.cut = True
            values, counts = summed(pc.binary_slice(values, 0, CUT), counts)  # a character may be cut apart
        self.frequent.add(values, counts)
        self._sketch(before, added)

    def merge(self, other: Summary) -> None:
        """Adds the values of another summary."""
        before, added = self.counted, other.counted
        self.missing += other.missing
        self.moments.merge(other.moments)
        self.zeros += other.zeros
        self.cut |= other.cut
        self.frequent.merge(other.frequent)
        self._sketch(before, added)
        if added is None:
            self.hashes.add(other.hashes.hashes, other.hashes.counts)
            self.sample.merge(other.sample)

    def _sketch(self, *parts: tuple[DistinctValues, np.ndarray] | None) -> None:
        """If not all values are known any more, adds to the sketches: those that were known, and those that came."""
        for values, counts in () if self.known else filter(None, parts):
            if len(values):
                if self.numeric:
                    self.sample.add(values, counts)
                self.hashes.add(_hashes(values), counts)

    @property
    def count(self) -> int:
        """How many values are not missing."""
        return self.moments.count

    @property
    def known(self) -> bool:
        """Whether all values are known, with their exact counts."""
        return not self.frequent.error and not self.cut

    @property
    def counted(self) -> tuple[DistinctValues, np.ndarray] | None:
        """All values and their counts; None if not all are known."""
        return (self.frequent.values, self.frequent.counts) if self.known else None

    @property
    def distinct(self) -> int:
        """The number of distinct values, or an estimate of it."""
        return len(self.frequent.values) if self.known else self.hashes.count

    @property
    def distinct_exact(self) -> bool:
        """Whether `distinct` is no estimate."""
        return self.known or self.hashes.exact

    @property
    def once(self) -> float:
        """The share of the distinct values that occur only once, or an estimate of it."""
        counts = self.frequent.counts if self.known else self.hashes.counts
        return float((counts == 1).mean()) if len(counts) else 0.0

    @property
    def quantiles_exact(self) -> bool:
        """Whether quantiles and histogram are exact, and not within the rank error of the sketch."""
        return self.known or len(self.sample.sizes) <= 1

    @property
    def rank_deviation(self) -> float:
        """The standard deviation of the share of the numbers that are at most some number; 0 if it is exact."""
        return 0.0 if self.quantiles_exact else RANK_DEVIATION

    def counts(self) -> dict[Any, int]:
        """Returns how often each value occurs; if not all values are known, only frequent ones."""
        return dict(zip(self.frequent.values.tolist(), self.frequent.counts.tolist(), strict=True))

    def ranked(self) -> list[tuple[Any, int]]:
        """Returns all values with their counts, the most frequent first; none if not all are known."""
        return self.frequent.top(len(self.frequent.counts)) if self.known else []

    def to_row(self) -> dict[str, Any]:
        """Returns the values of `ROW`."""
        return {
            "numeric": self.numeric,
            "missing": self.missing,
            "zeros": self.zeros,
            "cut": self.cut,
            "moments": vars(self.moments),
            "numbers": self.frequent.values if self.numeric else (),
            "strings": () if self.numeric else self.frequent.values.to_pylist(),
            "counts": self.frequent.counts,
            "error": self.frequent.error,
            "sample": self.sample.items,
            "levels": self.sample.sizes,
            "hashes": self.hashes.hashes,
            "hash_counts": self.hashes.counts,
        }

    @staticmethod
    def from_row(row: dict[str, Any], sizes: Sizes) -> Summary:
        """Makes a summary of the values of `ROW`, whose lists are arrays."""
        summary = Summary(sizes, numeric=row["numeric"])
        summary.missing, summary.zeros, summary.cut = row["missing"], row["zeros"], row["cut"]
        summary.moments = Moments(**row["moments"])
        values = row["numbers" if summary.numeric else "strings"]
        summary.frequent = FrequentValues(sizes.frequent, values, row["counts"], row["error"])
        summary.sample = Quantiles(row["sample"], row["levels"].tolist())
        summary.hashes = DistinctSketch(sizes.distinct, row["hashes"], row["hash_counts"])
        return summary


_MOMENTS = [("count", pa.int64()), *((name, pa.float64()) for name in ("total", "second", "third", "low", "high"))]
ROW = (  # the columns of a table of summaries
    ("numeric", pa.bool_()),
    ("missing", pa.int64()),
    ("zeros", pa.int64()),
    ("cut", pa.bool_()),
    ("moments", pa.struct(_MOMENTS)),
    ("numbers", pa.list_(pa.float32())),
    ("strings", pa.list_(pa.binary())),
    ("counts", pa.list_(pa.int64())),
    ("error", pa.int64()),
    ("sample", pa.list_(pa.float32())),
    ("levels", pa.list_(pa.int64())),
    ("hashes", pa.list_(pa.uint64())),
    ("hash_counts", pa.list_(pa.int64())),
)


def counted_rows(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the distinct numbers of each row of float32 `[rows, n]`, rising, without NaN, and their counts, int64."""
    rows = np.sort(rows, axis=1) + np.float32(0)  # NaN comes last; -0 is 0
    differ = rows[:, 1:] != rows[:, :-1]
    first = ~np.isnan(rows)  # whether a number begins a run of equal ones
    last = first.copy()
    first[:, 1:] &= differ
    last[:, :-1] &= differ
    starts, ends = np.flatnonzero(first), np.flatnonzero(last)
    values, counts = rows.ravel()[starts], ends - starts + 1
    stop = 0
    for runs in first.sum(1).tolist():
        start, stop = stop, stop + runs
        yield values[start:stop], counts[start:stop]


def _hashes(values: DistinctValues) -> np.ndarray:
    """uint64 `[n]`."""
    return mix(values.view(np.uint32) + GOLDEN) if isinstance(values, np.ndarray) else value_hashes(values)


def _lengths(values: pa.BinaryArray) -> pa.Array:
    """In characters; in bytes where a value is not UTF-8."""
    try:
        return pc.utf8_length(values.cast(pa.string()))
    except pa.ArrowInvalid:
        return pc.binary_length(values)


class Distribution:
    """The values of a column of numbers that has one.

    Attributes:
      count: how many values there are.
      low, high: the least and the greatest.
      rank_deviation: see `Summary.rank_deviation`.
    """

    def __init__(self, summary: Summary) -> None:
        self.count, self.rank_deviation = summary.count, summary.rank_deviation
        self.low, self.high = summary.moments.low, summary.moments.high
        values, weights = summary.counted or (summary.sample.items, summary.sample.weights)
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._upto = np.concatenate([[0], np.cumsum(weights[order])])  # how many values stand before each

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """Returns quantiles, float64: the least values that these fractions of all values, 0 to 1, do not exceed."""
        places = np.maximum(np.ceil(ranks * self.count - 1e-9), 1)
        values = self._values[np.searchsorted(self._upto, places, "left") - 1].astype(np.float64)
        values[ranks <= 0], values[ranks >= 1] = self.low, self.high  # which a sketch may have dropped
        return values

    def up_to(self, points: np.ndarray) -> np.ndarray:
        """Returns the fractions of values that are at most each of these float32 points, float64."""
        return self._count(points) / self.count

    def _count(self, points: np.ndarray) -> np.ndarray:
        counts: np.ndarray = self._upto[np.searchsorted(self._values, points, "right")]
        return counts

    def histogram(self, bins: int = BINS) -> tuple[np.ndarray, np.ndarray]:
        """Counts values in bins of equal width between the least and the greatest value; in one bin if all are equal.

        Returns:
          The edges, float64 `[bins + 1]`, and the counts, int64 `[bins]`, which add up to the column's. A value on an
          edge belongs to the bin on its right, but the greatest value to the last bin.
        """
        if self.low == self.high:
            return np.array([self.low, self.high]), np.array([self.count])
        edges = self.low + np.arange(bins + 1) * ((self.high - self.low) / bins)
        edges[-1] = self.high
        points = edges[1:-1].astype(np.float32)  # the greatest ones below the edges
        points = np.where(points >= edges[1:-1], below(points), points)
        return edges, np.diff(self._count(points), prepend=0, append=self.count)


def below(numbers: np.ndarray) -> np.ndarray:
    """Returns the float32 before each number, -inf before the least (of which NumPy warns)."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, np.float32(-np.inf))
