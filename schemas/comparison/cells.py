"""The cells over which two samples of a column are compared: values, or ranges of numbers between common edges."""

from __future__ import annotations

import dataclasses

import numpy as np

from schemas.comparison.samples import Numbers, Strings

BINS = 10  # of numbers, about, as TensorFlow Data Validation has them
FINE = 64  # quantiles of either side, among which the edges are chosen


@dataclasses.dataclass(frozen=True)
class Cells:
    """The shares of the values of two samples by cell; a cell that is empty on both sides is left out.

    Attributes:
      labels: what each cell holds, for people.
      shares: of either side, float64 `[cells]`, each with a sum of 1.
      counts: the values of either side.
      named: how many of the cells, from the first on, are a value or a range. The one behind them, if there is one,
        holds all values that are not known.
    """

    labels: tuple[str, ...]
    shares: tuple[np.ndarray, np.ndarray]
    counts: tuple[int, int]
    named: int

    @property
    def pooled(self) -> np.ndarray:
        """The share of each cell among all values of both sides."""
        first, second = (share * count for share, count in zip(self.shares, self.counts, strict=True))
        total: np.ndarray = (first + second) / sum(self.counts)
        return total


def of_numbers(a: Numbers, b: Numbers) -> Cells:
    """Ranges between common edges. Both sides have values."""
    bounds = edges(a, b)
    shares = [np.diff(side.up_to(bounds), prepend=0.0, append=1.0).clip(0) for side in (a, b)]
    held = np.flatnonzero((shares[0] > 0) | (shares[1] > 0))
    labels = [_range(bounds, place) for place in held.tolist()]
    return Cells(tuple(labels), (shares[0][held], shares[1][held]), (a.count, b.count), len(labels))


def edges(a: Numbers, b: Numbers) -> np.ndarray:
    """The greatest numbers of all ranges but the last: rising float32.

    They are deciles of the mixture of both sides in equal parts, among the quantiles of either side. A number that is
    several of the deciles gets a range of its own.
    """
    ranks = np.arange(1, FINE) / FINE
    ends = [side.low for side in (a, b)] + [side.high for side in (a, b)]
    points = np.unique(np.concatenate([a.at(ranks), b.at(ranks), ends]).astype(np.float32))
    mixture = (a.up_to(points) + b.up_to(points)) / 2
    deciles = points[np.searchsorted(mixture, np.arange(1, BINS) / BINS - 1e-9).clip(max=len(points) - 1)]
    repeated = deciles[1:][deciles[1:] == deciles[:-1]]
    return np.unique(np.concatenate([deciles, below(repeated)]))


def below(numbers: np.ndarray | np.float32) -> np.ndarray:
    """The float32 before each, -inf before the least (of which NumPy warns)."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, np.float32(-np.inf))


def _range(bounds: np.ndarray, place: int) -> str:
    if place == len(bounds):
        return f"above {bounds[-1]:.6g}"
    if place == 0:
        return f"up to {bounds[0]:.6g}"
    alone = below(bounds[place]) == bounds[place - 1]
    return f"{bounds[place]:.6g}" if alone else f"above {bounds[place - 1]:.6g}, up to {bounds[place]:.6g}"


def of_strings(a: Strings, b: Strings) -> Cells:
    """Each value that is known on a side; what is not known is one more cell. Both sides have values."""
    values = list(dict.fromkeys([*a.counts, *b.counts]))
    found = [np.array([side.counts.get(value, 0) for value in values], np.float64) for side in (a, b)]
    rest = [max(0.0, side.count - held.sum()) for side, held in zip((a, b), found, strict=True)]
    labels, named = [text(value) for value in values], len(values)
    if any(rest):
        labels.append("other values")
        found = [np.append(held, other) for held, other in zip(found, rest, strict=True)]
    return Cells(tuple(labels), (found[0] / a.count, found[1] / b.count), (a.count, b.count), named)


def text(value: bytes) -> str:
    """A value for people and for JSON."""
    return value.decode(errors="replace")
