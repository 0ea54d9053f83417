"""A comparison as text: a table, the most drifted feature first, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.comparison.findings import Comparison, FeatureDrift
from schemas.dataset.tables import table

SHOWN = 20  # features of a table, unless more exceed a threshold
_HEADER = ("feature", "", "distance", "noise", "L-inf", "JS", "missing", "what differs most")


def render(comparison: Comparison, *, every: bool = False) -> list[str]:
    """The lines. `every`: all features, not the most drifted ones alone."""
    return list(_lines(comparison, every=every))


def _lines(comparison: Comparison, *, every: bool) -> Iterator[str]:
    first, second = comparison.first, comparison.second
    yield f"{second} ({comparison.rows[1]:,}) against {first} ({comparison.rows[0]:,})"
    told = [feature for feature in comparison.features if feature.verdict in ("fail", "warn")]
    shown = comparison.features if every else comparison.features[: max(SHOWN, len(told))]
    yield from table(_HEADER, [_cells(feature) for feature in shown], left=2, last_left=True)
    if len(shown) < len(comparison.features):
        rest = comparison.features[len(shown) :]
        most = max((feature.drift for feature in rest), default=0.0)
        yield f"and {len(rest):,} features that differ by {most:.4f} at most; --all shows them"
    for name, a, b in comparison.channels:
        yield f"pixels of {name}: mean {a:.1f}, {b:.1f}"
    for feature in shown:
        yield from (f"{feature.name}: {line}" for line in feature.remarks(first, second, comparison.rows[1]))
    yield comparison.told


def _cells(feature: FeatureDrift) -> tuple[str, ...]:
    name = f"{feature.name} ({feature.role})" if feature.role != "feature" else feature.name
    state = {"fail": "FAIL", "warn": "warn"}.get(feature.verdict, "drift" if feature.drift else "noise")
    if feature.note:
        return name, "", "", "", "", "", "", feature.note
    if feature.distance is None:
        return name, state, "", "", "", "", feature.missed, ""
    numbers = (feature.distance, feature.noise, feature.l_infinity or 0.0, feature.jensen_shannon or 0.0)
    return name, state, *(f"{number:.4f}" for number in numbers), feature.missed, feature.most
