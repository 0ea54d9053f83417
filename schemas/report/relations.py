"""What the page shows of how columns go together: the label by the values of a feature, and correlations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.dataset.leakage import percent
from schemas.display import readable
from schemas.report.charts import CELL, Axis, Bars, Chart, Line, Mark, Rule, Text, compact, short
from schemas.report.drawing import LETTER

_EDGES = 6  # numbers below a chart


@dataclasses.dataclass(frozen=True)
class Target:
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
        """The mean, or the share of the one class; empty of several."""
        return "" if len(self.classes) > 1 else percent(means[0]) if self.classes else readable(means[0], 4)


def target_of(found: Mapping[str, Any]) -> Target:
    """The label, as `leakage.json` has it under `relations`."""
    return Target(found["label"], tuple(found["classes"]), tuple(found["overall"]))


def by_number(target: Target, bins: Sequence[Mapping[str, Any]]) -> Chart | None:
    """The label by the bins of a feature of numbers, each as wide as another. None: there is one bin."""
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
        marks.append(Line(middle, [part["label"][0] for part in bins], dots=True))
    if len(target.overall) == 1:
        marks.append(Rule(y=target.overall[0]))
    y = Axis(low=0.0, high=1.0 if len(target.classes) > 1 else None, percent=True) if target.classes else Axis()
    title = target.title if len(target.classes) < 2 else ""
    legend = sum(20 + LETTER * len(short(name, 34)) for name in target.classes) if not title else 0.0
    height = 190 + 16 * math.ceil(1.4 * legend / 340)  # its lines are not quite full
    return Chart(title, marks, Axis(low=0.0, high=len(bins), ticks=_ticks(bins)), y, (340, height))


def _ticks(bins: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """The value of each bin, or the least of each on its edge, as far as there is room; and `missing`."""
    known = [part for part in bins if "low" in part]
    single = all(part["low"] == part["high"] for part in known)
    step = -(-len(known) // _EDGES)
    found = [(i + 0.5 * single, _number(known[i]["low"])) for i in range(0, len(known), step)]
    return found + [(len(known) + 0.5, "missing") for part in bins if "missing" in part]


def _number(value: float) -> str:
    return compact(value) if abs(value) >= 10_000 else f"{value:.4g}"


def _range(part: Mapping[str, Any], told: str) -> str:
    where = "missing" if "missing" in part else f"{readable(part['low'])} to {readable(part['high'])}"
    return f"{where} ({percent(part['share'])} of the rows): {told}"


def with_columns(found: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """What `leakage.json` has under `relations`, with the names of columns in the files where features have others."""

    def named(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "names": [columns.get(name, name) for name in part["names"]]}

    correlations, missing = found["correlations"], found["missing"]
    if correlations.get("names"):
        correlations = {**named(correlations), "pairs": [named(pair) for pair in correlations["pairs"]]}
    missing = {**missing, "patterns": [named(pattern) for pattern in missing.get("patterns", ())]}
    return {**found, "correlations": correlations, "missing": missing}


def heat_map(found: Mapping[str, Any]) -> Chart | None:
    """Correlations as a matrix; None where there are none."""
    names, matrix = found.get("names", ()), found.get("matrix", ())
    if len(names) < 2:
        return None
    cells = [(i, j) for i in range(len(names)) for j in range(i)]
    marks: list[Mark] = []
    for tone, sign in ((0, 1), (1, -1)):
        some = [(i, j) for i, j in cells if sign * matrix[i][j] > 0]
        sides = [(j - 0.5, j + 0.5, -i - 0.5, 0.5 - i) for i, j in some]
        titles = [f"{names[i]} and {names[j]}: {matrix[i][j]:.3f}" for i, j in some]
        marks.append(
            Bars(
                sides, tone, "positive" if sign > 0 else "negative", [CELL * abs(matrix[i][j]) for i, j in some], titles
            )
        )
    marks += [Text(j, -i, f"{round(matrix[i][j], 1) + 0.0:.1f}") for i, j in cells]
    ends = -0.5, len(names) - 1.5
    side = 110 + 24 * len(names)
    return Chart(
        "Correlation",
        marks,
        Axis("", *ends, [(i, name) for i, name in enumerate(names[:-1])]),
        Axis("", 0.5 - len(names), -0.5, [(-i, name) for i, name in enumerate(names) if i]),
        (max(340, side + 40), max(220, side)),
    )
