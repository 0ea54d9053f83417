"""Two models on the same rows, on one page: which is better, and by how much more than chance."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from trainer.evaluation.metrics import CLASS_METRICS, VALUE_METRICS, measure, standard_error
from trainer.evaluation.page import number, render, words
from trainer.evaluation.pictures import Content
from trainer.evaluation.predictions import Predictions
from trainer.spec.metrics import higher_is_better

ERRORS = 1.96  # standard errors of an interval that holds the true value in 95 of 100 cases
LEAST = 30  # rows that a standard error is taken from
CLASSES = 200  # that are listed


@dataclasses.dataclass(frozen=True)
class ComparedModel:
    """A model: what it is called, its report's content, and its predictions of the rows."""

    name: str
    content: Content
    predictions: Predictions

    @property
    def deciding_metric(self) -> str:
        """The metric that decides which model is better."""
        return "log_loss" if self.content["kind"] == "classes" else "root_mean_squared_error"


def difference(first: ComparedModel, second: ComparedModel, metric: str) -> tuple[float, float] | None:
    """Returns how much higher a metric of the second is on the same rows, and how far that can be off.

    Returns:
      None where the models did not predict the same rows, or too few.
    """
    a, b = first.predictions, second.predictions
    if not np.array_equal(a.label, b.label):
        return None
    rows = np.flatnonzero(a.usable & b.usable & (a.weight > 0))
    if len(rows) < LEAST:
        return None
    a, b = a.take(rows), b.take(rows)
    return measure(metric, b) - measure(metric, a), ERRORS * standard_error(metric, b, a)


def verdict(first: ComparedModel, second: ComparedModel) -> str:
    """Returns the page in a sentence."""
    estimate = difference(first, second, first.deciding_metric)
    if estimate is None:
        return f"{first.name} and {second.name} cannot be compared: they did not predict the same {LEAST} rows or more."
    apart, margin = estimate
    error = words(first.deciding_metric)
    better, worse = (first.name, second.name) if apart > 0 else (second.name, first.name)
    if abs(apart) <= margin:
        return (
            f"No difference beyond chance: the {error} of {worse} is {number(abs(apart))} higher than that of "
            f"{better}, and with other rows this number could change by up to {number(margin)} (95 % confidence)."
        )
    return (
        f"{better} is better: its {error} is {number(abs(apart))} lower than that of {worse} "
        f"(± {number(margin)}, 95 % confidence)."
    )


def rows(first: ComparedModel, second: ComparedModel) -> list[tuple[str, float, float, float, float | None, str]]:
    """Returns each metric: of both, their difference, how far that can be off, and which is better beyond chance."""
    table = []
    for name, value in first.content["metrics"].items():
        other = second.content["metrics"].get(name)
        if value is None or other is None:
            continue
        estimate = difference(first, second, name) if name in (*CLASS_METRICS, *VALUE_METRICS) else None
        margin = None if estimate is None else estimate[1]
        better = ""
        if margin is not None and abs(other - value) > margin:
            better = "second" if (other > value) == higher_is_better(name) else "first"
        table.append((name, value, other, other - value, margin, better))
    return table


def page(first: ComparedModel, second: ComparedModel) -> str:
    """Returns the page. What comes from data is escaped; it loads nothing."""
    first, second = (dataclasses.replace(model, content=finite(model.content)) for model in (first, second))
    of_second = {row["class"]: row for row in second.content.get("classes", ())}
    of_first = first.content.get("classes", ())
    classes = [(row["class"], row, of_second[row["class"]]) for row in of_first if row["class"] in of_second]
    values: dict[str, Any] = {"rows": rows(first, second), "classes": classes[:CLASSES]}
    return render("versus.html", {}, sides=(first, second), verdict=verdict(first, second), **values)


def write_page(folder: str, split: str, first: ComparedModel, second: ComparedModel) -> str:
    """Writes `compared-<split>.html`. Returns its path."""
    path = layout.join(folder, f"compared-{split}.html")
    storage.write_bytes(path, page(first, second).encode())
    return path
