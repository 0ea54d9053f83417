"""The values of many columns of numbers: quantiles, shares and histograms of all of them by a few calls."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.profile.columns import Numbers

RANKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)  # of the quantiles that are reported
BINS = 20


class Distributions:
    """Columns of numbers, each with a value.

    All of their values are one rising array, ordered by column and value, so that one binary search serves all columns.

    Attributes:
      counts: the values of each, int64 `[columns]`.
      low, high: the least and the greatest of each, float64 `[columns]`.
      deviations: of the rank of a value, see `Numbers.rank_deviation`; float64 `[columns]`.
    """

    def __init__(self, columns: Sequence[Numbers]) -> None:
        self.counts = np.array([column.count for column in columns], np.int64)
        self.low = np.array([column.low for column in columns], np.float64)
        self.high = np.array([column.high for column in columns], np.float64)
        self.deviations = np.array([column.rank_deviation for column in columns], np.float64)
        self._columns = np.arange(len(columns))
        held = [column.held for column in columns]
        values = np.concatenate([np.empty(0, np.float32), *(some for some, _ in held)])
        weights = np.concatenate([np.empty(0, np.int64), *(some for _, some in held)])
        keys = _keys(np.repeat(np.arange(len(held)), [len(some) for some, _ in held]), values)
        if (keys[1:] < keys[:-1]).any():  # exact counts are in order already
            order = np.argsort(keys)
            keys, values, weights = keys[order], values[order], weights[order]
        self._keys, self._values = keys, values.astype(np.float64)
        self._upto = np.concatenate([[0], np.cumsum(weights)])  # how many stand before each value, of all columns
        self._before = np.cumsum(self.counts) - self.counts

    def taken(self, places: Sequence[int]) -> Distributions:
        """Some of the columns."""
        found = copy.copy(self)
        for name in ("counts", "low", "high", "deviations", "_columns", "_before"):
            setattr(found, name, getattr(self, name)[list(places)])
        return found

    def at(self, ranks: np.ndarray, of: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Quantiles: the least values that at least these fractions of all values do not exceed.

        Args:
          ranks: from 0 to 1, float64 `[ranks]`, or `[columns, ranks]` if they differ.
          of: which columns.

        Returns:
          float64 `[columns, ranks]`.
        """
        counts, ranks = self.counts[of, None], np.atleast_2d(ranks)
        wanted = np.maximum(np.ceil(ranks * counts - 1e-9), 1).astype(np.int64) + self._before[of, None]
        found = self._values[np.searchsorted(self._upto, wanted, "left") - 1]
        low, high = self.low[of, None], self.high[of, None]  # which a sketch may have dropped
        return np.where(ranks <= 0, low, np.where(ranks >= 1, high, found))

    def up_to(self, points: np.ndarray, of: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The fractions of values that are at most each of some float32 points.

        Args:
          points: `[columns, points]`, none of them NaN.
          of: which columns.

        Returns:
          float64 `[columns, points]`.
        """
        return self._count(points, of) / self.counts[of, None]

    def _count(self, points: np.ndarray, of: np.ndarray | slice = slice(None)) -> np.ndarray:
        places = np.searchsorted(self._keys, _keys(self._columns[of, None], points), "right")
        found: np.ndarray = self._upto[places] - self._before[of, None]
        return found

    def histograms(self, bins: int = BINS) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each column, bins of equal width between the least and the greatest value.

        Returns:
          The edges, float64 `[bins + 1]`, and the counts, int64 `[bins]`, which add up to the column's. A value on an
          edge belongs to the bin on its right, but the greatest value to the last bin. One bin, if all are equal.
        """
        edges = self.low[:, None] + np.arange(bins + 1) * ((self.high - self.low) / bins)[:, None]
        edges[:, -1] = self.high
        points = edges[:, 1:-1].astype(np.float32)  # the greatest ones below the edges
        points = np.where(points >= edges[:, 1:-1], below(points), points)
        ends = np.zeros_like(self.counts)[:, None], self.counts[:, None]
        counts = np.diff(np.concatenate([ends[0], self._count(points), ends[1]], axis=1))
        return [
            (each, some) if each[0] != each[-1] else (each[[0, -1]], some.sum(keepdims=True))
            for each, some in zip(edges, counts, strict=True)
        ]


def describe_numbers(columns: Sequence[Numbers], top: int) -> list[dict[str, Any]]:
    """The statistics of columns as JSON values. `top`: how many frequent values are listed."""
    known = [column for column in columns if column.count]
    values, ranks = Distributions(known), list(RANKS)
    shapes = zip(values.at(np.array(RANKS)).tolist(), values.histograms(), _top(known, top), strict=True)
    found: list[dict[str, Any]] = []
    for column in columns:
        told: dict[str, Any] = {"count": column.count, "missing": column.missing}
        if column.count:
            quantiles, (edges, counts), most = next(shapes)
            told |= {
                "mean": column.mean,
                "std": column.std,
                "min": column.low,
                "max": column.high,
                "zeros": column.zeros,
                **column.distinct_values(),
                "quantiles": {"ranks": ranks, "values": quantiles, "exact": column.quantiles_exact},
                "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
                "top_values": most,
                "top_values_error": column.frequent.error,
            }
        found.append(told)
    return found


def _top(columns: Sequence[Numbers], most: int) -> list[list[dict[str, Any]]]:
    """Of each column, its most frequent values as JSON values, by descending count and then in ascending order."""
    counts = [column.frequent.counts for column in columns]
    sizes = np.array([len(some) for some in counts], np.int64)
    if not sizes.any():
        return [[] for _ in columns]
    of, count = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(counts)
    value = np.concatenate([column.frequent.values for column in columns])
    side_by_side = np.zeros((len(sizes), max(most, int(sizes.max()))), np.int64)
    side_by_side[np.arange(side_by_side.shape[1]) < sizes[:, None]] = count
    least = np.partition(side_by_side, -most, axis=1)[:, -most]
    places = np.flatnonzero(count >= least[of])
    places = places[np.lexsort((value[places], -count[places], of[places]))]
    starts = np.searchsorted(of[places], np.arange(len(sizes)))
    places = places[np.arange(len(places)) - starts[of[places]] < most]
    listed = [{"value": v, "count": n} for v, n in zip(value[places].tolist(), count[places].tolist(), strict=True)]
    stops = np.cumsum(np.minimum(sizes, most)).tolist()
    return [listed[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)]


def below(numbers: np.ndarray) -> np.ndarray:
    """The float32 before each, -inf before the least (of which NumPy warns)."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, np.float32(-np.inf))


def _keys(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """uint64 that are ordered as the columns' places and, of one column, the float32 values."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0 + 0 is 0
    ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))
    return (columns.astype(np.uint64) << np.uint64(32)) | ordered
