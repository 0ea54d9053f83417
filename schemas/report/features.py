"""Prepares what the report of a dataset shows of each feature: its statistics by split, and the label by its values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from schemas.dataset.leakage import percent
from schemas.dataset.statistics import HEADS, cells
from schemas.display import readable
from schemas.report.charts import LETTER, Axis, Bars, Chart, Curve, Mark, Rule, compact, drawn, short, stairs

PICTURED = 100  # features with a histogram or the most frequent values, the first ones of the page
_EDGES = 6  # numbers below a chart
VALUES = 8  # frequent values that are shown


def histogram(splits: Mapping[str, Mapping[str, Any]]) -> Chart | None:
    """Draws the shares of a feature's numbers in equal ranges, a line for each split.

    Args:
      splits: the feature's statistics by split.

    Returns:
      None if no split has one, or all values are equal.
    """
    histograms = {name: s["histogram"] for name, s in splits.items() if s["count"] and s.get("histogram")}
    histograms = {name: h for name, h in histograms.items() if h["edges"][-1] > h["edges"][0] and sum(h["counts"])}
    if not histograms:
        return None
    low = min(h["edges"][0] for h in histograms.values())
    high = max(h["edges"][-1] for h in histograms.values())
    edges = np.linspace(low, high, len(next(iter(histograms.values()))["counts"]) + 1)
    order = list(splits)
    lines: list[Curve] = []
    for name, h in histograms.items():
        below = np.interp(edges, h["edges"], np.cumsum([0.0, *h["counts"]]) / sum(h["counts"]))
        lines.append(Curve(*stairs(edges.tolist(), np.diff(below).tolist()), order.index(name), filled=not lines))
    return Chart("Share of rows", lines, Axis(low=low, high=high), Axis(low=0.0, percent=True), (340, 190))


@dataclasses.dataclass(frozen=True)
class ValueShares:
    """A frequent value, and its share of the values of each split; None where it is none of those that are counted."""

    value: str
    shares: tuple[float | None, ...]


def frequent(splits: Mapping[str, Mapping[str, Any]]) -> tuple[ValueShares, ...]:
    """Returns the most frequent values of a feature in the first split, and then of the splits after it."""
    shares: dict[str, dict[str, float]] = {}
    unlisted: dict[str, float | None] = {}  # the share of a value that is not listed, where it is known
    for name, described in splits.items():
        listed = described.get("top_values", ()) if described["count"] else ()
        unlisted[name] = 0.0 if sum(value["count"] for value in listed) >= described["count"] else None
        for value in listed:
            shares.setdefault(_text(value["value"]), {})[name] = value["count"] / described["count"]
    ordered = sorted(shares, key=lambda value: [-shares[value].get(name, 0.0) for name in splits])
    return tuple(
        ValueShares(v, tuple(shares[v].get(name, unlisted[name]) for name in splits)) for v in ordered[:VALUES]
    )


def _text(value: object) -> str:
    return readable(value) if isinstance(value, float) else str(value)


@dataclasses.dataclass(frozen=True)
class LabelMeans:
    """What is averaged: shares of classes, or the mean of a label that is a number (no classes)."""

    label: str
    classes: tuple[str, ...]
    overall: tuple[float, ...]

    @property
    def title(self) -> str:
        """What a chart of it shows."""
        if not self.classes:
            return f"mean of {short(self.label, 30)}"
        return (
            f"{short(self.label, 24)} = {short(self.classes[0], 16)}"
            if len(self.classes) == 1
            else short(self.label, 30)
        )

    def text(self, means: Sequence[float]) -> str:
        """Writes the mean, or the share of the one class; nothing of several classes."""
        return "" if len(self.classes) > 1 else percent(means[0]) if self.classes else readable(means[0], 4)


def label_means(relations: Mapping[str, Any]) -> LabelMeans:
    """Reads the label from what `leakage.json` has under `relations`."""
    return LabelMeans(relations["label"], tuple(relations["classes"]), tuple(relations["overall"]))


def by_number(target: LabelMeans, bins: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Draws the label by the bins of a feature of numbers, each as wide as another; None if there is one bin."""
    if len(bins) < 2:
        return None
    marks: list[Mark] = []
    if target.classes:
        bases = [0.0] * len(bins)
        for tone, name in enumerate(target.classes):
            tops = [base + part["label"][tone] for base, part in zip(bases, bins, strict=True)]
            sides = [(i + 0.06, i + 0.94, base, top) for i, (base, top) in enumerate(zip(bases, tops, strict=True))]
            titles = [_range(part, f"{percent(part['label'][tone])} are {name}") for part in bins]
            marks.append(Bars(sides, tone, name if len(target.classes) > 1 else "", titles=titles))
            bases = tops
        if len(target.classes) > 1 and min(bases) < 0.999:
            rest = [(i + 0.06, i + 0.94, base, 1.0) for i, base in enumerate(bases)]
            titles = [_range(part, f"{percent(1 - base)} are others") for part, base in zip(bins, bases, strict=True)]
            marks.append(Bars(rest, "pale", "others", titles=titles))
    else:
        middle = [i + 0.5 for i in range(len(bins))]
        marks.append(Curve(middle, [part["label"][0] for part in bins], dots=True))
    if len(target.overall) == 1:
        marks.append(Rule(y=target.overall[0]))
    y = Axis(low=0.0, high=1.0 if len(target.classes) > 1 else None, percent=True) if target.classes else Axis()
    title = target.title if len(target.classes) < 2 else ""
    legend = sum(20 + LETTER * len(short(name, 34)) for name in target.classes) if not title else 0.0
    height = 190 + 16 * math.ceil(1.4 * legend / 340)  # its lines are not quite full
    return Chart(title, marks, Axis(low=0.0, high=len(bins), ticks=_ticks(bins)), y, (340, height))


def _ticks(bins: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """The value of each bin, or the least of each on its edge, as far as there is room; and `missing`."""
    ranges = [part for part in bins if "low" in part]
    single = all(part["low"] == part["high"] for part in ranges)
    step = -(-len(ranges) // _EDGES)
    ticks = [(i + 0.5 * single, _number(ranges[i]["low"])) for i in range(0, len(ranges), step)]
    return ticks + [(len(ranges) + 0.5, "missing") for part in bins if "missing" in part]


def _number(value: float) -> str:
    return compact(value) if abs(value) >= 10_000 else f"{value:.4g}"


def _range(part: Mapping[str, Any], what: str) -> str:
    where = "missing" if "missing" in part else f"{readable(part['low'])} to {readable(part['high'])}"
    return f"{where} ({percent(part['share'])} of the rows): {what}"


@dataclasses.dataclass(frozen=True)
class Feature:
    """What the page shows of a feature."""

    name: str
    feature: str
    kind: str
    role: str
    type: str
    splits: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...]
    leaks: bool
    rejected: int
    target: LabelMeans | None = None
    related: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    histogram: str = ""
    by_label: str = ""
    frequent: tuple[ValueShares, ...] = ()

    @property
    def rows(self) -> list[tuple[str, Any]]:
        """The table: what a row holds, and its cells as markup, escaped together: one by one took half of a report."""
        columns = [cells(described, self.type) for described in self.splits.values()]
        texts = [str(escape("\t".join(row))) for row in zip(*columns, strict=True)]
        markup = [Markup(f"<td>{text.replace(chr(9), '</td><td>')}</td>") for text in texts]  # noqa: S704
        rows = list(zip(HEADS[self.type], markup, strict=False))  # no cells where there is no split
        return [row for row in rows if row[0] != "most frequent"]  # which have a table of their own

    def pictured(self) -> Feature:
        """Returns the feature with its histogram and its most frequent values."""
        few = self.type == "string" or all(described.get("distinct", 0) <= 2 for described in self.splits.values())
        return dataclasses.replace(
            self,
            histogram=drawn(histogram(self.splits)) if self.type == "number" else "",
            by_label=drawn(by_number(self.target, self.related.get("bins", ()))) if self.target else "",
            frequent=frequent(self.splits) if few else (),
        )

    @property
    def labels(self) -> Mapping[str, Sequence[float]]:
        """The label's mean by frequent value."""
        parts = (part for part in self.related.get("values", ()) if part["value"] is not None)
        return {part["value"]: part["label"] for part in parts}

    @property
    def largest_share(self) -> float:
        """The share whose bar is as long as there is room."""
        return max((share for value in self.frequent for share in value.shares if share), default=1.0)

    @property
    def unlisted(self) -> int:
        """How many values are not among the frequent ones that are shown, by the split that has the most."""
        return max(0, self.distinct - len(self.frequent))

    @property
    def missing(self) -> float:
        """The largest share of missing values in any split."""
        return max((s["missing"] / max(1, s["count"] + s["missing"]) for s in self.splits.values()), default=0.0)

    @property
    def distinct(self) -> int:
        """The most distinct values in any split."""
        return max((s.get("distinct", 0) for s in self.splits.values()), default=0)


def features_of(
    statistics: Mapping[str, Any],
    warnings: Mapping[str, Sequence[str]],
    *,
    leaking: Container[str],
    rejected: Mapping[str, int],
    relations: Mapping[str, Any] | None = None,
) -> list[Feature]:
    """Returns the features to show.

    Those that tell the label come first, then those that records were rejected for, those with a warning, the label,
    and the others as in the schema. The first `PICTURED` have pictures.

    Args:
      statistics: as `schemas.dataset.statistics.read_statistics` returns them.
      warnings: by feature.
      leaking: the names of those that tell the label.
      rejected: the rejected records by column, among the first that were read.
      relations: as `leakage.json` has them.
    """
    target = None if relations is None else label_means(relations)
    related = {} if relations is None else {item["name"]: item for item in relations["features"]}
    first = {item["feature"]: item for item in reversed(statistics["features"])}  # a vector's warnings stand there
    features = [
        Feature(
            name=item["name"],
            feature=item["feature"],
            kind=item["kind"],
            role=item["role"],
            type=item["type"],
            splits=item["splits"],
            warnings=tuple(
                message
                for name in {item["name"]: None, item["feature"]: None}
                if name == item["name"] or item is first[item["feature"]]
                for message in warnings.get(name, ())
            ),
            leaks=item["name"] in leaking,
            target=target,
            related=related.get(item["name"], {}),
            rejected=rejected.get(item["name"].removeprefix(item["feature"]).strip("[]") or item["name"], 0),
        )
        for item in statistics["features"]
    ]
    features.sort(key=lambda f: (not f.leaks, not f.rejected, not f.warnings, f.role != "label"))
    return [feature.pictured() for feature in features[:PICTURED]] + features[PICTURED:]
