"""Two models on the same rows, on one page: which is better, and by how much more than chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from schemas.report.charts import Axis, Chart, Line, Mark, Rule, stairs
from trainer.evaluation.metrics import METRICS
from trainer.evaluation.metrics import difference as metric_difference
from trainer.evaluation.page import DIAGONAL, MARKED, Content, all_pictures, measure, number, render, unit, words
from trainer.evaluation.predictions import Answers
from trainer.spec.metrics import higher_is_better

PAGE = "versus.html"
ERRORS = 1.96  # standard errors of an interval that holds the true value in 95 of 100 cases
LEAST = 30  # rows that a standard error is taken from
_CLASSES = 200  # that are listed


@dataclasses.dataclass(frozen=True)
class Side:
    """A model: what it is called, its report's content, and its answers to the rows; None: it gives none."""

    name: str
    content: Content
    answers: Answers | None


def difference(first: Side, second: Side, metric: str | None = None) -> tuple[float, float] | None:
    """How much higher a metric of the second is on the same rows, and how far that can be off; None: unknown.

    `metric`: one of `trainer.evaluation.metrics.METRICS`, by default the error that decides. Rows count by weight.
    """
    one, other = first.answers, second.answers
    if one is None or other is None or not np.array_equal(one.label, other.label):
        return None
    usable = np.flatnonzero(np.isfinite(one.loss) & np.isfinite(other.loss) & (one.weight > 0))
    if len(usable) < LEAST:
        return None
    apart = metric_difference(metric or _error(first), other.take(usable), one.take(usable))
    return apart.candidate - apart.serving, ERRORS * apart.error


def _error(side: Side) -> str:
    """The metric that decides which model is better."""
    return "log_loss" if side.content["kind"] == "classes" else "root_mean_squared_error"


def verdict(first: Side, second: Side) -> str:
    """The page in a sentence."""
    found = difference(first, second)
    error = words(_error(first))
    if found is None:
        return f"{first.name} and {second.name} cannot be compared: they did not predict the same {LEAST} rows or more."
    apart, margin = found
    if abs(apart) <= margin:
        higher, lower = (second, first) if apart > 0 else (first, second)
        return (
            f"No difference beyond chance: the {error} of {higher.name} is {number(abs(apart))} higher than that of "
            f"{lower.name}, and with other rows this number could change by up to {number(margin)} (95 % confidence)."
        )
    better, worse = (first, second) if apart > 0 else (second, first)
    return (
        f"{better.name} is better: its {error} is {number(abs(apart))} lower than that of {worse.name} "
        f"(± {number(margin)}, 95 % confidence)."
    )


def rows(first: Side, second: Side) -> list[tuple[str, float, float, float, float | None, str]]:
    """Each metric: of both, their difference, how far that can be off, and which side is better, if not by chance."""
    found = []
    for name, one in first.content["metrics"].items():
        other = second.content["metrics"].get(name)
        if not isinstance(one, int | float) or not isinstance(other, int | float):
            continue
        apart = other - one
        _, margin = (name in METRICS and difference(first, second, name)) or (0.0, None)
        sure = margin is not None and abs(apart) > margin
        better = "" if not sure else "second" if (apart > 0) == higher_is_better(name) else "first"
        found.append((name, one, other, apart, margin, better))
    return found


def charts(first: Side, second: Side) -> dict[str, Chart]:
    """The curves of both over one another, and their confusion matrices."""
    sides = (first, second)
    contents = [side.content for side in sides]
    found: dict[str, Chart] = {}
    lines: list[tuple[Any, Any, float | None]]
    curves = [c.get("curves", {}) for c in contents]
    shared = [name for name in curves[0] if all("roc" in c.get(name, {}) for c in curves)][:1]
    for name in shared if len(contents[0].get("classes", ())) == 2 else ():
        both = [c[name] for c in curves]
        lines = [(c["roc"]["false_positive_rate"], c["roc"]["true_positive_rate"], c["auc"]) for c in both]
        axes = unit("false positive rate"), unit("true positive rate")
        found["roc"] = _over("ROC curve", sides, lines, axes, DIAGONAL)
        pairs = [c["precision_recall"] for c in both]
        lines = [(p["recall"], p["precision"], c["average_precision"]) for p, c in zip(pairs, both, strict=True)]
        axes, rule = (unit("recall"), unit("precision")), Rule(y=both[0]["share"])
        found["precision_recall"] = _over("Precision and recall", sides, lines, axes, rule)
    known = [c.get("calibration", {}) for c in contents]
    if all(c.get("weight") for c in known):
        lines = [(c["mean_probability"], c["share"], None) for c in known]
        axes = unit(known[0]["of"]), unit("share that is true")
        found["calibration"] = _over("Calibration", sides, lines, axes, DIAGONAL, dots=True)
    if all("residuals" in c for c in contents):
        lines = [(*stairs(c["residuals"]["edges"], c["residuals"]["counts"]), None) for c in contents]
        axes = Axis("prediction minus label"), Axis("rows")
        found["residuals"] = _over("Residuals", sides, lines, axes, Rule(x=0.0))
    panels = [{p["metric"]: p for p in c["learning_curves"].get("panels", ())} for c in contents]
    for name in [name for name in panels[0] if name in panels[1]][:3]:
        lines = [(p[name]["steps"], p[name]["values"], None) for p in panels]
        few = max(len(steps) for steps, _, _ in lines) <= MARKED
        title = measure(name, contents[0], unit=True)
        found[f"learning/{name}"] = _over(title, sides, lines, (Axis("step", whole=True), Axis()), dots=few)
    for place, side in enumerate(sides):
        if "confusion_matrix" in (drawn := all_pictures({**side.content, "learning_curves": {}})):
            title = f"Confusion matrix of {side.name}"
            found[f"confusion/{place}"] = dataclasses.replace(drawn["confusion_matrix"], title=title)
    return found


def _over(
    title: str,
    sides: tuple[Side, Side],
    lines: Sequence[tuple[Any, Any, float | None]],
    axes: tuple[Axis, Axis],
    *under: Mark,
    dots: bool = False,
) -> Chart:
    """A line of each side, with the area below it if there is one."""
    marks = [*under]
    for tone, (side, (x, y, area)) in enumerate(zip(sides, lines, strict=True)):
        marks.append(Line(x, y, tone, side.name if area is None else f"{side.name}  {area:.3f}", dots=dots))
    return Chart(title, marks, *axes)


def page(first: Side, second: Side) -> str:
    """The page. What comes from data is escaped; it loads nothing."""
    first, second = (dataclasses.replace(side, content=finite(side.content)) for side in (first, second))
    by_class = [{row["class"]: row for row in side.content.get("classes", ())} for side in (first, second)]
    values: Mapping[str, Any] = {
        "sides": (first, second),
        "verdict": verdict(first, second),
        "rows": rows(first, second),
        "classes": [(name, row, by_class[1][name]) for name, row in by_class[0].items() if name in by_class[1]][
            :_CLASSES
        ],
    }
    return render(__package__, PAGE, charts(first, second), **values)


def write_page(folder: str, split: str, first: Side, second: Side) -> str:
    """Writes `compared-<split>.html`. Returns its path."""
    path = page_path(folder, split)
    storage.write_bytes(path, page(first, second).encode())
    return path


def page_path(folder: str, split: str) -> str:
    """Where the page of two models is."""
    return layout.join(folder, f"compared-{split}.html")
