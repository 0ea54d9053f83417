"""The small charts of features, as numbers that the page draws: histograms by split, shares of frequent values, and
bars of two samples side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT = 330.0, 72.0  # of a histogram, in the page's pixels
VALUES = 8  # frequent values that are shown


@dataclasses.dataclass(frozen=True)
class Outline:
    """The histogram of one split as the points of an SVG polyline: its densities, so that splits compare."""

    split: str
    points: str


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The histograms of all splits over the same axis, from `low` to `high`."""

    low: float
    high: float
    outlines: tuple[Outline, ...]


def histogram(splits: Mapping[str, Mapping[str, Any]]) -> Histogram | None:
    """The histogram of a feature of numbers.

    Args:
      splits: the feature's statistics by split.

    Returns:
      None if no split has one, or all values are equal.
    """
    found = {name: s["histogram"] for name, s in splits.items() if s["count"] and s.get("histogram")}
    found = {name: h for name, h in found.items() if h["edges"][-1] > h["edges"][0] and sum(h["counts"])}
    if not found:
        return None
    low = min(h["edges"][0] for h in found.values())
    high = max(h["edges"][-1] for h in found.values())
    tops = {name: _densities(h["edges"], h["counts"], high - low) for name, h in found.items()}
    most = max(max(top) for top in tops.values())
    outlines = []
    for name, h in found.items():
        places = [WIDTH * (edge - low) / (high - low) for edge in h["edges"]]
        levels = [HEIGHT * (1 - 0.94 * top / most) for top in tops[name]]
        points = [(places[0], HEIGHT)]
        for i, level in enumerate(levels):
            points += [(places[i], level), (places[i + 1], level)]
        points.append((places[-1], HEIGHT))
        outlines.append(Outline(name, " ".join(f"{x:.1f},{y:.1f}" for x, y in points)))
    return Histogram(low, high, tuple(outlines))


def _densities(edges: Sequence[float], counts: Sequence[float], span: float) -> list[float]:
    """The share of each bin by its share of the axis; a bin without width counts as a thousandth of the axis."""
    total = sum(counts)
    return [
        count / total / max((edges[i + 1] - edges[i]) / span, 1e-3) if total else 0.0 for i, count in enumerate(counts)
    ]


@dataclasses.dataclass(frozen=True)
class Frequent:
    """A frequent value, and its share of the values of each split."""

    value: str
    shares: tuple[float, ...]


def frequent(splits: Mapping[str, Mapping[str, Any]]) -> tuple[Frequent, ...]:
    """The most frequent values of a feature, by their largest share in any split; a share that is not listed is 0."""
    shares: dict[str, dict[str, float]] = {}
    for name, found in splits.items():
        for value in found.get("top_values", ()) if found["count"] else ():
            shares.setdefault(_text(value["value"]), {})[name] = value["count"] / found["count"]
    ordered = sorted(shares, key=lambda value: -max(shares[value].values()))
    return tuple(Frequent(v, tuple(shares[v].get(name, 0.0) for name in splits)) for v in ordered[:VALUES])


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


BARS_WIDTH, BARS_HEIGHT = 180.0, 36.0  # of a picture, in the page's pixels


@dataclasses.dataclass(frozen=True)
class Bar:
    """The share of one cell on one side (0 or 1)."""

    side: int
    label: str
    share: float
    x: float
    y: float
    width: float
    height: float


def bars(cells: Sequence[tuple[str, float, float]]) -> list[Bar]:
    """Pairs of bars side by side, the tallest as high as the picture."""
    most = max((max(first, second) for _, first, second in cells), default=0.0)
    if not most:
        return []
    step = BARS_WIDTH / max(6, len(cells))
    found = []
    for place, (label, *shares) in enumerate(cells):
        for side, share in enumerate(shares):
            height = (BARS_HEIGHT - 1) * share / most
            x = place * step + (0.1 + 0.4 * side) * step
            found.append(Bar(side, label, share, x, BARS_HEIGHT - height, 0.4 * step, height))
    return found
