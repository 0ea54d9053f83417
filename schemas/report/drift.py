"""The part of a page that shows comparisons: their features, the most drifted first, and the shares of their values."""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

PART = "drift.html"
SHOWN, LEAST = 20, 5  # features of a comparison with pictures; the others are folded up
WIDTH, HEIGHT = 180.0, 36.0  # of a picture, in the page's pixels


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
    step = WIDTH / max(6, len(cells))
    found = []
    for place, (label, *shares) in enumerate(cells):
        for side, share in enumerate(shares):
            height = (HEIGHT - 1) * share / most
            x = place * step + (0.1 + 0.4 * side) * step
            found.append(Bar(side, label, share, x, HEIGHT - height, 0.4 * step, height))
    return found


def section(comparisons: Sequence[Mapping[str, Any]], environment: Any) -> str:
    """The cards of comparisons as HTML, with the filters of `environment`, a Jinja2 one that escapes.

    `comparisons` are as `schemas.comparison.Comparison.as_json` has them.
    """
    text = importlib.resources.files(__package__).joinpath(PART).read_text(encoding="utf-8")
    shown = [_prepared(comparison) for comparison in comparisons]
    return environment.from_string(text).render(comparisons=shown, width=WIDTH, height=HEIGHT) if shown else ""


def _prepared(comparison: Mapping[str, Any]) -> dict[str, Any]:
    features = comparison["features"]
    exceed = sum(feature["verdict"] in ("fail", "warn") for feature in features)
    drifted = sum(feature["drift"] > 0 for feature in features)
    count = max(LEAST, exceed, min(SHOWN, drifted))
    first = [_feature(feature, picture=True) for feature in features[:count]]
    return {**comparison, "shown": first, "rest": [_feature(feature, picture=False) for feature in features[count:]]}


def _feature(feature: Mapping[str, Any], *, picture: bool) -> dict[str, Any]:
    return {**feature, "bars": bars(feature["cells"]) if picture else []}
