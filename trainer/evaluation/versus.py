"""Two models on the same rows, on one page: which is better, and by how much more than chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from trainer.evaluation.metrics import CLASS_METRICS, VALUE_METRICS, measure, standard_error
from trainer.evaluation.page import Content, number, render, words
from trainer.evaluation.predictions import Predictions
from trainer.spec.metrics import higher_is_better

PAGE = "versus.html"
ERRORS = 1.96  # standard errors of an interval that holds the true value in 95 of 100 cases
LEAST = 30  # rows that a standard error is taken from
_CLASSES = 200  # that are listed


@dataclasses.dataclass(frozen=True)
class Side:
    """A model: what it is called, its report's content, and its predictions to the rows; None: it gives none."""

    name: str
    content: Content
    predictions: Predictions | None


def difference(first: Side, second: Side, metric: str | None = None) -> tuple[float, float] | None:
    """How much higher a metric of the second is on the same rows, and how far that can be off; None: unknown.

    `metric`: one by which models are compared, by default the error that decides. Rows count by weight.
    """
    a, b = first.predictions, second.predictions
    if a is None or b is None or not np.array_equal(a.label, b.label):
        return None
    usable = np.flatnonzero(a.usable & b.usable & (a.weight > 0))
    if len(usable) < LEAST:
        return None
    name, a, b = metric or _error(first), a.take(usable), b.take(usable)
    return measure(name, b) - measure(name, a), ERRORS * standard_error(name, b, a)


def _error(side: Side) -> str:
    """The metric that decides which model is better."""
    return "log_loss" if side.content["kind"] == "classes" else "root_mean_squared_error"


def verdict(first: Side, second: Side) -> str:
    """The page in a sentence."""
    estimate = difference(first, second)
    error = words(_error(first))
    if estimate is None:
        return f"{first.name} and {second.name} cannot be compared: they did not predict the same {LEAST} rows or more."
    apart, margin = estimate
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
    table = []
    for name, first_value in first.content["metrics"].items():
        second_value = second.content["metrics"].get(name)
        if not isinstance(first_value, int | float) or not isinstance(second_value, int | float):
            continue
        apart = second_value - first_value
        _, margin = (name in (*CLASS_METRICS, *VALUE_METRICS) and difference(first, second, name)) or (0.0, None)
        sure = margin is not None and abs(apart) > margin
        better = "" if not sure else "second" if (apart > 0) == higher_is_better(name) else "first"
        table.append((name, first_value, second_value, apart, margin, better))
    return table


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
    return render(__package__, PAGE, {}, **values)


def write_page(folder: str, split: str, first: Side, second: Side) -> str:
    """Writes `compared-<split>.html`. Returns its path."""
    path = page_path(folder, split)
    storage.write_bytes(path, page(first, second).encode())
    return path


def page_path(folder: str, split: str) -> str:
    """Where the page of two models is."""
    return layout.join(folder, f"compared-{split}.html")
