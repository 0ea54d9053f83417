"""A report as one HTML page that needs no network, and its content as JSON."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from schemas.report.charts import (
    PAIRS,
    UNIT,
    Axis,
    Bars,
    Chart,
    Curve,
    Dots,
    Mark,
    Rule,
    short,
    stairs,
)
from schemas.report.data_report import ending, templates
from trainer.evaluation.metrics import OF_CLASSES, OF_VALUES
from trainer.spec.metrics import higher_is_better

Content = Mapping[str, Any]
DRAWN = len(PAIRS)  # curves of one chart
MARKED = 50  # evaluations of which each is a dot
DIAGONAL = Curve((0, 1), (0, 1), "soft", dashed=True)


def pictures(content: Content) -> dict[str, Chart]:
    """The charts that an evaluation has, by name; the page has the confusion matrix as a table."""
    charts: dict[str, Chart] = {}
    curves = {name: c for name, c in content.get("curves", {}).items() if "roc" in c}
    if curves:
        charts["roc"] = _roc(curves)
        charts["precision_recall"] = _precision_recall(curves)
    if content.get("calibration", {}).get("weight"):
        charts["calibration"] = _calibration(content["calibration"])
    if "thresholds" in content:
        charts["thresholds"] = _thresholds(content["thresholds"])
    if "residuals" in content:
        charts["predictions"] = _predictions(content["rows_shown"])
        charts["residuals"] = _residuals(content["residuals"])
        charts["groups"] = _groups(content["groups"])
    for panel in content.get("learning_curves", {}).get("panels", []):
        charts[f"{LEARNING}{panel['metric']}"] = _learning(panel, content)
    return charts


LEARNING = "learning_curves/"


def _roc(curves: Content) -> Chart:
    lines = [
        Curve(c["roc"]["false_positive_rate"], c["roc"]["true_positive_rate"], tone, f"{short(name)}  {c['auc']:.3f}")
        for tone, (name, c) in enumerate([*curves.items()][:DRAWN])
    ]
    title = "ROC curve, area" if len(curves) > 1 else "ROC curve"
    return Chart(title, [DIAGONAL, *lines], unit("false positive rate"), unit("true positive rate"))


def unit(label: str) -> Axis:
    """An axis of shares."""
    return dataclasses.replace(UNIT, label=label)


def _precision_recall(curves: Content) -> Chart:
    marks: list[Mark] = [Rule(y=curve["share"]) for curve in curves.values() if len(curves) == 1]
    for tone, (name, curve) in enumerate([*curves.items()][:DRAWN]):
        pair, label = curve["precision_recall"], f"{short(name)}  {curve['average_precision']:.3f}"
        marks.append(Curve(pair["recall"], pair["precision"], tone, label))
    return Chart("Precision and recall", marks, unit("recall"), unit("precision"))


def _calibration(content: Content) -> Chart:
    weight = np.array(content["weight"])
    means = content["mean_probability"]
    rows = [(x - 0.025, x + 0.025, 0.0, top) for x, top in zip(means, weight / weight.max() * 0.25, strict=True)]
    marks: list[Mark] = [Bars(rows, "pale", "rows"), DIAGONAL, Curve(means, content["share"], dots=True)]
    return Chart("Calibration", marks, unit(content["of"]), unit("share that is true"))


def _thresholds(content: Content) -> Chart:
    rows = content["table"]
    marks: list[Mark] = [Rule(x=content["best_f1"]["threshold"])]
    for tone, name in enumerate(("precision", "recall", "f1")):
        points = [row for row in rows if row[name] is not None]  # none, where every probability is below the thresholds
        x, y = [row["threshold"] for row in points], [row[name] for row in points]
        marks.append(Curve(x, y, tone, "F1" if name == "f1" else name))
    return Chart("Decision threshold", marks, unit("threshold"), UNIT)


def _diagonal(*numbers: Sequence[float]) -> Curve:
    every = [number for part in numbers for number in part]
    ends = [min(every), max(every)]
    return Curve(ends, ends, "soft", dashed=True)


def _predictions(rows: Content) -> Chart:
    x, y = rows["label"], rows["prediction"]
    marks: list[Mark] = [_diagonal(x, y), Dots(x, y, radius=1.8, opacity=0.35)]
    return Chart("Predictions", marks, Axis("label"), Axis("prediction"))


def _residuals(content: Content) -> Chart:
    marks: list[Mark] = [Curve(*stairs(content["edges"], content["counts"]), filled=True), Rule(x=0.0)]
    return Chart("Residuals", marks, Axis("prediction minus label"), Axis("rows"))


def _groups(groups: Sequence[Content]) -> Chart:
    x, y = [group["mean_prediction"] for group in groups], [group["mean_label"] for group in groups]
    marks = [_diagonal(x, y), Curve(x, y, dots=True)]
    return Chart("Mean label by prediction", marks, Axis("mean prediction of a tenth of the rows"), Axis("mean label"))


def _learning(panel: Content, content: Content) -> Chart:
    name = "evaluated" if panel.get("train") else ""
    marks: list[Mark] = []
    values = [*panel["values"], *panel.get("train", ())]
    steep = bool(panel.get("train")) and min(values) > 0 and max(values) > 5 * min(values)
    if panel.get("train"):
        marks.append(Curve(panel.get("train_steps", panel["steps"]), panel["train"], "soft", "train", opacity=0.8))
    marks.append(Curve(panel["steps"], panel["values"], 0, name, dots=len(panel["steps"]) <= MARKED))
    if panel["best"] is not None:
        marks.append(Dots([panel["best"]], [panel["values"][panel["steps"].index(panel["best"])]], 1))
    steps = Axis("round" if "by round" in panel["metric"] else "step", whole=True)
    return Chart(measure(panel["metric"], content, unit=True), marks, steps, Axis(log=steep))


PAGE = "page.html"
_IN_WORDS = {
    "accuracy_of_always_the_most_frequent_class": "accuracy of always predicting the most frequent class",
    "error_of_always_the_mean": "root mean squared error of always predicting the mean",
    "mean_residual": "mean residual (prediction minus label)",
}
NO_VALUE = "\N{EN DASH}"


def page_path(model_dir: str, split: str) -> str:
    """Where the page of a split's report is."""
    return layout.join(model_dir, f"report-{split}.html")


def predictions_path(model_dir: str, split: str) -> str:
    """Where the predictions are that a split's report is of."""
    return layout.join(model_dir, f"predictions-{split}.arrow")


def write_report(model_dir: str, split: str, content: Content) -> str:
    """Writes `report-<split>.html` and `report-<split>.json`.

    Args:
      model_dir: a folder on local disk or `gs://`.
      split: the split that was evaluated.
      content: see `trainer.evaluation.report`. NaN and infinity become null.

    Returns:
      The page's path.
    """
    content = finite(content)
    data = {name: value for name, value in content.items() if name != "pictures"}
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    storage.write_bytes(layout.join(model_dir, f"report-{split}.json"), text.encode() + b"\n")
    path = page_path(model_dir, split)
    storage.write_bytes(path, page(content).encode())
    return path


def page(content: Content) -> str:
    """The page. Everything that comes from data is escaped; the page loads nothing and sends nothing.

    Args:
      content: what `finite` gives.
    """
    sentence, bad = verdict(content)
    pairs = list(zip(content.get("worst_rows", ()), content.get("pictures", ()), strict=False))
    values = {"content": content, "pairs": pairs, "verdict": sentence, "bad": bad}
    return render(__package__, PAGE, pictures(content), **values)


# What the page calls the metrics of a training's evaluations. Of values, the loss is least where its root is.
_OF_CLASSES = {**OF_CLASSES, "loss": "log_loss"}
_OF_VALUES = {**OF_VALUES, **dict.fromkeys(("average_loss", "loss"), "root_mean_squared_error")}
_OF_ONE_CLASS = ("precision", "recall", "average_precision")


def measure(name: str, content: Content, *, unit: bool = False) -> str:
    """What the page calls a metric of the training's evaluations. `unit`: with its unit, where it has one."""
    values = content["kind"] == "values"
    if name == "loss":
        return "loss that the training lowers"
    if name == "average_loss" and ":" in content["model"]:  # a user's own
        return "average loss"
    same = (_OF_VALUES if values else _OF_CLASSES).get(name, name)
    of_class = f" of {content['positive_class']}" if same in _OF_ONE_CLASS and "positive_class" in content else ""
    units = dict.fromkeys(("log_loss", "balanced_log_loss"), "nats per row")
    units |= dict.fromkeys(("root_mean_squared_error", "mean_absolute_error"), "in the label's units")
    return words(same) + of_class + (f" ({units[same]})" if unit and same in units else "")


def verdict(content: Content) -> tuple[str, bool]:
    """The page in a sentence: the metric that chose the model, and accuracy, against a guess that reads no feature.

    Returns:
      The sentence, empty where nothing is known; and whether the model is no better than the guess.
    """
    metrics = content["metrics"]
    guesses: list[tuple[str, float | None, str]] = []  # a metric, that of a guess, and what guesses
    if content["kind"] == "values":
        guesses.append(
            ("root_mean_squared_error", metrics.get("error_of_always_the_mean"), "always predicting the mean")
        )
    elif content["classes"]:
        supports = [row["support"] for row in content["classes"]]
        shares = [support / sum(supports) for support in supports if support]
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


def render(package: str, template: str, charts: Mapping[str, Chart], **values: Any) -> str:
    """A page from its template.

    Args:
      package: the package that the template lies in.
      template: its file, which extends `base.html`.
      charts: by name; the template has them as `figures`.
      **values: what else it has. Their text is escaped.
    """
    figures = {name: chart.svg() for name, chart in charts.items()}
    page: str = _environment(package).get_template(template).render(figures=figures, **values)
    return page


@functools.cache
def _environment(package: str) -> Any:
    """The package's templates: a training writes a page at each evaluation."""
    return templates(package, number=number, percent=percent, count=count, words=words, measure=measure, ending=ending)


def number(value: float | None) -> str:
    """A metric, in four digits; a dash where there is none."""
    if value is None:
        return NO_VALUE
    if 0.001 <= abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share."""
    return NO_VALUE if value is None else f"{100 * value:.1f} %"


def count(value: float | None) -> str:
    """A number of rows, or the sum of their weights."""
    return NO_VALUE if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def words(name: str) -> str:
    """The name of a metric, in words."""
    return (
        _IN_WORDS.get(name, name)
        .replace("_", " ")
        .replace("auc", "AUC")
        .replace(" f1", " F1")
        .replace("r2", "R²")
        .replace("brier", "Brier")
        .replace("matthews", "Matthews")
    )
