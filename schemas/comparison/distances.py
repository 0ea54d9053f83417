"""Measures how much the values of two columns differ, and how large a difference chance alone would explain.

Values are counted in cells. For strings, each value is a cell. For numbers, a cell is a range; both columns are cut
into the same ranges.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np

from schemas.display import readable
from schemas.profile.summary import Distribution, Summary, below

BINS = 10  # of numbers, about, as TensorFlow Data Validation has them
_RANKS = np.arange(1, 256) / 256  # of the quantiles of either side, among which the edges are chosen
LEAST = 5  # values of a cell beside a number that has a range of its own
DEVIATIONS = 8  # of an estimated rank, in the share of such a cell
CONFIDENCE = 0.99  # that equal data stays within the noise, for all features of a comparison together


@dataclasses.dataclass(frozen=True)
class CellShares:
    """For each cell, the shares of the two columns' values in this cell. Cells empty in both columns are left out.

    Attributes:
      labels: a readable name of each cell, such as "above 1, up to 2".
      shares: the shares of the first and of the second column, float64 `[cells]` each.
    """

    labels: tuple[str, ...]
    shares: tuple[np.ndarray, np.ndarray]


def cells_of_strings(first: Summary, second: Summary) -> CellShares:
    """Returns the shares of each string that either summary counts. Both summaries must have values."""
    counts = first.counts(), second.counts()
    values = list(dict.fromkeys([*counts[0], *counts[1]]))
    p, q = (np.array([side.get(value, 0) for value in values], np.float64) for side in counts)
    return CellShares(tuple(map(text, values)), (p / first.count, q / second.count))


def text(value: bytes) -> str:
    """Converts a value to text for people and for JSON."""
    return value.decode(errors="replace")


def cells_of_numbers(first: Distribution, second: Distribution) -> CellShares:
    """Cuts the numbers of both columns into the same ranges, and returns the shares of each range, in rising order."""
    if first.low == first.high == second.low == second.high:  # as pixels at the border of images
        return CellShares((readable(first.low),), (np.ones(1), np.ones(1)))
    bounds = edges(first, second)
    p, q = (np.diff(side.up_to(bounds), prepend=0.0, append=1.0).clip(0) for side in (first, second))
    ends, alone = bounds.tolist(), below(bounds[1:]) == bounds[:-1]
    between = [
        readable(high) if single else f"above {readable(low)}, up to {readable(high)}"
        for low, high, single in zip(ends[:-1], ends[1:], alone.tolist(), strict=True)
    ]
    labels = [f"up to {readable(ends[0])}", *between, f"above {readable(ends[-1])}"]
    filled = np.flatnonzero((p > 0) | (q > 0))
    return CellShares(tuple(labels[place] for place in filled), (p[filled], q[filled]))


def edges(first: Distribution, second: Distribution) -> np.ndarray:
    """Chooses the ranges of numbers, and returns the greatest number of each range except the last.

    Both columns are mixed in equal parts. A number that makes up at least a tenth of the mixture gets a range of its
    own. All other numbers are cut at their deciles, or at fewer quantiles if a tenth of them would be too few values
    for a reliable share. Frequent numbers are taken out first because of columns where nearly all rows are 0: deciles
    of the whole column would put all other numbers into a single range, and hide every change among them.

    Returns:
      The edges in rising order, float32 `[edges]`.
    """
    sides = first, second
    ends = [first.low, first.high, second.low, second.high]
    numbers = np.concatenate([*(side.at(_RANKS) for side in sides), ends]).astype(np.float32)
    points = np.unique(np.concatenate([below(numbers), numbers]))  # so that a range may hold a number alone
    shares = np.diff((first.up_to(points) + second.up_to(points)) / 2, prepend=0.0)
    alone = np.append(False, below(points[1:]) == points[:-1]) & (shares >= 1 / BINS)
    rest = np.cumsum(np.where(alone, 0.0, shares))
    count = BINS
    if alone.any():
        least = max(LEAST / min(first.count, second.count), DEVIATIONS * max(side.rank_deviation for side in sides))
        count = min(max(int(rest[-1] / least), 1), BINS)
    places = np.searchsorted(rest, np.arange(1, count) / count * rest[-1] - 1e-9)
    return np.unique(np.concatenate([points[places], points[alone], below(points[alone])]))


def l_infinity(p: np.ndarray, q: np.ndarray) -> float:
    """Returns the greatest difference of the shares of one cell, from 0 to 1.

    This is the `infinity_norm` of TensorFlow Data Validation's drift and skew comparators: the L-infinity distance of
    normalized counts. https://www.tensorflow.org/tfx/data_validation/anomalies

    Args:
      p, q: the shares of the cells, float64 `[cells]`.
    """
    return float(np.abs(p - q).max(initial=0.0))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Returns the Jensen-Shannon divergence in bits, from 0 (equal) to 1 (nothing in common).

    J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory 37(1), 1991,
    with equal weights: (KL(p || m) + KL(q || m)) / 2 for m = (p + q) / 2. It is the square of SciPy's
    `jensenshannon(p, q, base=2)`, and `jensen_shannon_divergence` of TensorFlow Data Validation.

    Args:
      p, q: the shares of the cells, float64 `[cells]`, each with a sum of 1.
    """
    middle = (p + q) / 2
    entropies = (
        (side * np.log2(np.divide(side, middle, out=np.ones_like(side), where=side > 0))).sum() for side in (p, q)
    )
    return min(max(float(sum(entropies)) / 2, 0.0), 1.0)


def share_noise(pooled: np.ndarray, counts: tuple[int, int], *, tests: int) -> float:
    """Returns the most that the shares of a cell differ by if both sides are samples of the same data.

    Bernstein's inequality for the difference of two means of independent 0s and 1s, with the pooled share as its
    variance, for both directions and for all tests (union bound). S. Boucheron, G. Lugosi, P. Massart, "Concentration
    Inequalities", 2013, section 2.8.

    Args:
      pooled: the share of each cell among the values of both sides, float64 `[cells]`.
      counts: the number of values on either side, at least 1.
      tests: how many shares are compared, in all features together.

    Returns:
      The noise of the cell that has most of it, from 0 to 1.
    """
    bits = math.log(2 * tests / (1 - CONFIDENCE))
    variance = float((pooled * (1 - pooled)).max(initial=0.0)) * (1 / counts[0] + 1 / counts[1])
    linear = bits / min(counts) / 3
    return min(1.0, linear + math.sqrt(linear * linear + 2 * bits * variance)) if variance else 0.0


def divergence_noise(cells: CellShares, first: Distribution, second: Distribution, *, tests: int) -> float:
    """Returns the largest Jensen-Shannon divergence that chance explains if both sides are samples of the same data.

    To second order, the divergence in nats is sum((p - q)^2 / m) / 8, so that 8 times it, divided by 1/a + 1/b for
    counts of a and b, is distributed as chi-square with cells - 1 degrees of freedom (the same expansion makes the
    G-test); one more is taken, since the cells' edges follow the data. Its quantile is that of E. B. Wilson and M. M.
    Hilferty, "The distribution of chi-square", 1931. Where ranks are estimated, the variance of a share, which is the
    difference of two ranks, comes on top.

    Args:
      cells: the ranges.
      first, second: the numbers of either side.
      tests: how many divergences are compared.
    """
    middle = (cells.shares[0] + cells.shares[1]) / 2
    free = len(middle)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / tests)
    spread = 2 / (9 * free)
    chi_square = free * (1 - spread + z * math.sqrt(spread)) ** 3
    rank_variance = 2 * (first.rank_deviation**2 + second.rank_deviation**2)
    scale = 1 / first.count + 1 / second.count + rank_variance * float((1 / middle).mean())
    return min(1.0, chi_square * scale / (8 * math.log(2)))
