"""Mean, deviation and skewness of numbers that arrive in batches."""

from __future__ import annotations

import math

import numpy as np


class Moments:
    """Central moments, merged as in Pébay, "Formulas for robust, one-pass parallel computation of covariances and
    arbitrary-order statistical moments", 2008, equations 2.1 and 2.2."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._second = 0.0
        self._third = 0.0

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds numbers, float64 `[n]`, each with how often it occurs, int64 `[n]`."""
        added = int(counts.sum())
        if not added:
            return
        mean = float(values @ counts) / added
        apart = values - mean
        squares = apart * apart
        second = float(squares @ counts)
        third = float((squares * apart) @ counts)
        before, total = self.count, self.count + added
        delta = mean - self.mean
        self._third += (
            third
            + delta**3 * before * added * (before - added) / total**2
            + 3 * delta * (before * second - added * self._second) / total
        )
        self._second += second + delta**2 * before * added / total
        self.mean += delta * added / total
        self.count = total

    @property
    def deviation(self) -> float:
        """The standard deviation, of the numbers as a population."""
        return math.sqrt(max(self._second, 0.0) / self.count) if self.count else 0.0

    @property
    def skewness(self) -> float:
        """The third standardised moment; 0 where all numbers are equal."""
        deviation = self.deviation
        scale = self.count * deviation**3 if deviation < 1e100 else math.inf
        return self._third / scale if scale > 0 else 0.0
