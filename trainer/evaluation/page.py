"""A report as one HTML page that needs no network, and its content as JSON."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from schemas.report.charts import Chart
from schemas.report.data_report import ending, templates
from trainer.evaluation.metrics import OF_CLASSES, OF_VALUES
from trainer.evaluation.pictures import Content, learning_chart, pictures
from trainer.spec.metrics import higher_is_better

NO_VALUE = "\N{EN DASH}"
_IN_WORDS = {
    "accuracy_of_always_the_most_frequent_class": "accuracy of always predicting the most frequent class",
    "error_of_always_the_mean": "root mean squared error of always predicting the mean",
    "mean_residual": "mean residual (prediction minus label)",
}
_SPELLED = {"_": " ", "auc": "AUC", " f1": " F1", "r2": "R²", "brier": "Brier", "matthews": "Matthews"}
_UNITS = dict.fromkeys(("log_loss", "balanced_log_loss"), "nats per row")
_UNITS |= dict.fromkeys(("root_mean_squared_error", "mean_absolute_error"), "in the label's units")

# What the page calls the metrics of a training's evaluations. Of values, the loss is least where its root is.
_OF_CLASSES = {**OF_CLASSES, "loss": "log_loss"}
_OF_VALUES = {**OF_VALUES, **dict.fromkeys(("average_loss", "loss"), "root_mean_squared_error")}


def predictions_path(folder: str, split: str) -> str:
    """Returns where the predictions are that a split's report is of."""
    return layout.join(folder, f"predictions-{split}.arrow")


def write_report(folder: str, split: str, content: Content) -> str:
    """Writes `report-<split>.html` and `report-<split>.json`.

    Args:
      folder: a folder on local disk or `gs://`.
      split: the split that was evaluated.
      content: see `trainer.evaluation.report`. NaN and infinity become null.

    Returns:
      The page's path.
    """
    content = finite(content)
    data = {name: value for name, value in content.items() if name != "pictures"}
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    storage.write_bytes(layout.join(folder, f"report-{split}.json"), text.encode() + b"\n")
    path = layout.join(folder, f"report-{split}.html")
    storage.write_bytes(path, page(content).encode())
    return path


def page(content: Content) -> str:
    """Returns the page. Everything that comes from data is escaped; the page loads nothing and sends nothing.

    Args:
      content: what `finite` returns.
    """
    sentence, bad = verdict(content)
    pairs = list(zip(content.get("worst_rows", ()), content.get("pictures", ()), strict=False))
    panels = content.get("learning_curves", {}).get("panels", [])
    curves = {f"learning_curves/{p['metric']}": learning_chart(p, _with_unit(p["metric"], content)) for p in panels}
    values = {"content": content, "pairs": pairs, "verdict": sentence, "bad": bad}
    return render("page.html", pictures(content) | curves, **values)


def render(template: str, charts: Mapping[str, Chart], **values: Any) -> str:
    """Returns a page from its template, which extends `base.html`.

    Args:
      template: its file beside this module.
      charts: by name; the template has them as `figures`.
      **values: what else it has. Their text is escaped.
    """
    figures = {name: chart.svg() for name, chart in charts.items()}
    page: str = _environment().get_template(template).render(figures=figures, **values)
    return page


@functools.cache
def _environment() -> Any:
    """The templates: a training writes a page at each evaluation."""
    return templates(
        __package__, number=number, percent=percent, count=count, words=words, measure=measure, ending=ending
    )


def _metric_of(name: str, content: Content) -> str:
    """The metric of a report that a metric of the training's evaluations is."""
    return (_OF_VALUES if content["kind"] == "values" else _OF_CLASSES).get(name, name)


def measure(name: str, content: Content) -> str:
    """Returns what the page calls a metric of the training's evaluations."""
    if name == "loss":
        return "loss that the training lowers"
    if name == "average_loss" and ":" in content["model"]:  # a user's own
        return "average loss"
    metric = _metric_of(name, content)
    of_class = metric in ("precision", "recall", "average_precision") and "positive_class" in content
    return f"{words(metric)} of {content['positive_class']}" if of_class else words(metric)


def _with_unit(name: str, content: Content) -> str:
    title, unit = measure(name, content), _UNITS.get(_metric_of(name, content))
    return f"{title} ({unit})" if unit and title == words(_metric_of(name, content)) else title


def verdict(content: Content) -> tuple[str, bool]:
    """Returns the page in a sentence: the metric that chose the model, and accuracy, beside those of a guess.

    Returns:
      The sentence, empty where nothing can be compared; and whether the model is no better than the guess.
    """
    metrics = content["metrics"]
    guesses: list[tuple[str, float | None, str]] = []  # a metric, that of a guess, and what guesses
    if content["kind"] == "values":
        error = metrics.get("error_of_always_the_mean")
        guesses.append(("root_mean_squared_error", error, "always predicting the mean"))
    elif content["classes"]:
        supports = [row["support"] for row in content["classes"] if row["support"]]
        shares = [support / sum(supports) for support in supports]
        of_losses = {
            "log_loss": (-sum(share * math.log(share) for share in shares), "predicting the shares of the classes"),
            "balanced_log_loss": (math.log(len(shares) or 1), "giving each class the same probability"),
            "auc": (0.5, "chance"),
        }
        name = _OF_CLASSES.get(content["learning_curves"].get("best_metric") or "", "")
        if name in of_losses:
            guesses.append((name, *of_losses[name]))
        most_frequent = metrics.get("accuracy_of_always_the_most_frequent_class")
        guesses.append(("accuracy", most_frequent, "always predicting the most frequent class"))
    clauses, better = [], []
    for name, guess, how in guesses:
        value = metrics.get(name)
        if value is not None and guess is not None:
            clauses.append(f"its {words(name)} is {number(value)} ({how} has {number(guess)})")
            better.append(value > guess if higher_is_better(name) else value < guess)
    if not clauses:
        return "", False
    start = "Better" if all(better) else "Little better" if any(better) else "No better"
    return f"{start} than a guess: {', and '.join(clauses)}.", not all(better)


def number(value: float | None) -> str:
    """Returns a metric in four digits; a dash where there is none."""
    if value is None:
        return NO_VALUE
    if 0.001 <= abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """Returns a share in percent."""
    return NO_VALUE if value is None else f"{100 * value:.1f} %"


def count(value: float) -> str:
    """Returns a number of rows, or the sum of their weights."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def words(name: str) -> str:
    """Returns the name of a metric, in words."""
    text = _IN_WORDS.get(name, name)
    for spelling, shown in _SPELLED.items():
        text = text.replace(spelling, shown)
    return text
