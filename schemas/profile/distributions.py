"""How the values of a column of numbers are distributed: quantiles, shares and histograms, of its summary."""

from __future__ import annotations

import numpy as np

from schemas.profile.summary import Summary

BINS = 20


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
        """Quantiles: the least values that at least these fractions of all values, 0 to 1, do not exceed; float64."""
        places = np.maximum(np.ceil(ranks * self.count - 1e-9), 1)
        values = self._values[np.searchsorted(self._upto, places, "left") - 1].astype(np.float64)
        values[ranks <= 0], values[ranks >= 1] = self.low, self.high  # which a sketch may have dropped
        return values

    def up_to(self, points: np.ndarray) -> np.ndarray:
        """The fractions of values that are at most each of some float32 points, float64."""
        return self._count(points) / self.count

    def _count(self, points: np.ndarray) -> np.ndarray:
        counts: np.ndarray = self._upto[np.searchsorted(self._values, points, "right")]
        return counts

    def histogram(self, bins: int = BINS) -> tuple[np.ndarray, np.ndarray]:
        """Bins of equal width between the least and the greatest value; one bin, if all values are equal.

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
    """The float32 before each, -inf before the least (of which NumPy warns)."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, np.float32(-np.inf))
