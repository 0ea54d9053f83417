"""Distances between two distributions over the same cells, and what chance alone makes of them.

A cell is a value, or a range of numbers; each side has a share of each cell.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.99  # that equal data stays within the noise, for all features of a comparison together


def l_infinity(p: np.ndarray, q: np.ndarray) -> float:
    """The greatest difference of the shares of one cell, from 0 to 1.

    This is the `infinity_norm` of TensorFlow Data Validation's drift and skew comparators: the L-infinity distance of
    normalized counts. https://www.tensorflow.org/tfx/data_validation/anomalies

    Args:
      p, q: the shares of the cells, float64 `[cells]`.
    """
    return float(np.abs(p - q).max(initial=0.0))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """The Jensen-Shannon divergence in bits, from 0 (equal) to 1 (nothing in common).

    J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory 37(1), 1991,
    with equal weights: (KL(p || m) + KL(q || m)) / 2 for m = (p + q) / 2. It is the square of SciPy's
    `jensenshannon(p, q, base=2)`, and `jensen_shannon_divergence` of TensorFlow Data Validation.

    Args:
      p, q: the shares of the cells, float64 `[cells]`, each with a sum of 1.
    """
    middle = (p + q) / 2
    return min(1.0, max(0.0, (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2))


def _relative_entropy(p: np.ndarray, m: np.ndarray) -> float:
    held = p > 0
    return float((p[held] * np.log2(p[held] / m[held])).sum())


def share_noise(pooled: np.ndarray, counts: tuple[int, int], *, tests: int) -> float:
    """What the shares of a cell differ by at most if both sides are samples of the same data.

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


def divergence_noise(middle: np.ndarray, counts: tuple[int, int], *, tests: int, rank_variance: float = 0.0) -> float:
    """What the Jensen-Shannon divergence is at most if both sides are samples of the same data.

    To second order, the divergence in nats is sum((p - q)^2 / m) / 8, so that 8 times it, divided by 1/a + 1/b for
    counts of a and b, is distributed as chi-square with cells - 1 degrees of freedom (the same expansion makes the
    G-test); one more is taken, since the cells' edges follow the data. Its quantile is that of E. B. Wilson and M. M.
    Hilferty, "The distribution of chi-square", 1931.

    Args:
      middle: the share of each cell in the mixture of both sides, float64 `[cells]`, none of them 0.
      counts: the number of values on either side, at least 1.
      tests: how many divergences are compared.
      rank_variance: of the difference of two shares, because ranks are estimated; 0 if they are exact.
    """
    free = max(1, len(middle))
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / tests)
    spread = 2 / (9 * free)
    chi_square = free * (1 - spread + z * math.sqrt(spread)) ** 3
    scale = 1 / counts[0] + 1 / counts[1] + rank_variance * float((1 / middle).mean())
    return min(1.0, chi_square * scale / (8 * math.log(2)))
