"""A comparison as text: a table, the most drifted feature first, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.comparison.findings import Comparison, FeatureDrift, percent, shares
from schemas.dataset.tables import table

SHOWN = 20  # features of a table, unless more exceed a threshold
FAR = 0.001  # of the rows may be outside the range without a word, where a feature has not drifted
_HEADER = ("feature", "", "distance", "noise", "L-inf", "JS", "missing", "what differs most")


def render(comparison: Comparison, *, every: bool = False) -> list[str]:
    """The lines. `every`: all features, not the most drifted ones alone."""
    return list(_lines(comparison, every=every))


def _lines(comparison: Comparison, *, every: bool) -> Iterator[str]:
    first, second = comparison.first, comparison.second
    yield f"{second} ({comparison.rows[1]:,}) against {first} ({comparison.rows[0]:,})"
    told = [feature for feature in comparison.features if feature.verdict != "ok"]
    shown = comparison.features if every else comparison.features[: max(SHOWN, len(told))]
    yield from table(_HEADER, [_cells(feature) for feature in shown], left=2, last_left=True)
    if len(shown) < len(comparison.features):
        rest = comparison.features[len(shown) :]
        most = max((feature.drift for feature in rest), default=0.0)
        yield f"and {len(rest):,} features that differ by {most:.4f} at most; --all shows them"
    for name, a, b in comparison.channels:
        yield f"pixels of {name}: mean {a:.1f}, {b:.1f}"
    for feature in shown:
        yield from (f"{feature.name}: {line}" for line in remarks(feature, first, second, comparison.rows[1]))
    yield comparison.told


def _cells(feature: FeatureDrift) -> tuple[str, ...]:
    name = f"{feature.name} ({feature.role})" if feature.role != "feature" else feature.name
    state = {"fail": "FAIL", "warn": "warn", "ok": "drift" if feature.drift else "noise"}[feature.verdict]
    if feature.note:
        return name, "", "", "", "", "", "", feature.note
    a, b = feature.missing
    missing = f"{percent(a)} -> {percent(b)}" if a or b else ""
    if feature.distance is None:
        return name, state, "", "", "", "", missing, ""
    numbers = (feature.distance, feature.noise, feature.l_infinity or 0.0, feature.jensen_shannon or 0.0)
    where = "" if feature.cell is None or not feature.l_infinity else shares(feature.cell)
    return name, state, *(f"{number:.4f}" for number in numbers), missing, where


def remarks(feature: FeatureDrift, first: str, second: str, rows: int) -> Iterator[str]:
    """Unseen values, and a range that is wider because of a drift or of more than a few values, in words."""
    unseen = feature.unseen
    if unseen is not None:
        some = ", ".join(f"{value!r} {count:,}" for value, count in unseen.examples)
        more = "at least " if unseen.at_least else ""
        rare = f" (or occur there {unseen.at_most:,} times at most)" if unseen.at_most else ""
        values = "1 value" if unseen.distinct == 1 else f"{unseen.distinct:,} values"
        rest = ", ..." if unseen.distinct > len(unseen.examples) else ""
        yield f"{more}{values} not in {first}{rare}, in {unseen.rows:,} records of {second}: {some}{rest}"
    span = feature.range
    if span is not None and span.wider and (feature.drift or (span.outside or 0) > FAR * rows):
        what = "lengths" if span.outside is None else "values"
        count = span.outside
        outside = "" if count is None else f", {count:,} {'value' if count == 1 else 'values'} outside"
        ends = " to ".join(f"{end:.6g}" for end in span.second), " to ".join(f"{end:.6g}" for end in span.first)
        yield f"{what} from {ends[0]} in {second}, {ends[1]} in {first}{outside}"
