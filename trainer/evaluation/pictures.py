"""The charts of a report, from its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.report.charts import PAIRS, UNIT, Axis, Bars, Chart, Curve, Dots, Mark, Rule, short, stairs

Content = Mapping[str, Any]
DRAWN = len(PAIRS)  # curves of one chart
MARKED = 50  # evaluations of which each is a dot
DIAGONAL = Curve((0, 1), (0, 1), "soft", dashed=True)


def pictures(content: Content) -> dict[str, Chart]:
    """Returns the charts that an evaluation has, by name; the page has the confusion matrix as a table.

    Args:
      content: of a report.
    """
    charts: dict[str, Chart] = {}
    if curves := content.get("curves"):
        charts |= {"roc": _roc(curves), "precision_recall": _precision_recall(curves)}
    if content.get("calibration", {}).get("weight"):
        charts["calibration"] = _calibration(content["calibration"])
    if "thresholds" in content:
        charts["thresholds"] = _thresholds(content["thresholds"])
    if "residuals" in content:
        shown, groups = content["rows_shown"], content["groups"]
        dots = Dots(shown["label"], shown["prediction"], radius=1.8, opacity=0.35)
        means = Curve([g["mean_prediction"] for g in groups], [g["mean_label"] for g in groups], dots=True)
        mean_axes = Axis("mean prediction of a tenth of the rows"), Axis("mean label")
        charts["predictions"] = _beside_diagonal("Predictions", dots, Axis("label"), Axis("prediction"))
        charts["residuals"] = _residuals(content["residuals"])
        charts["groups"] = _beside_diagonal("Mean label by prediction", means, *mean_axes)
    return charts


def learning_chart(panel: Content, title: str) -> Chart:
    """Returns the chart of a metric of a training's evaluations, beside the loss of its batches if the panel has it.

    Args:
      panel: of `learning_curves`.
      title: what the metric is called.
    """
    steps, values, train = panel["steps"], panel["values"], panel.get("train", ())
    marks: list[Mark] = []
    if train:
        marks.append(Curve(panel.get("train_steps", steps), train, "soft", "train", opacity=0.8))
    marks.append(Curve(steps, values, 0, "evaluated" if train else "", dots=len(steps) <= MARKED))
    if panel["best"] is not None:
        marks.append(Dots([panel["best"]], [values[steps.index(panel["best"])]], 1))
    every = [*values, *train]
    steep = bool(train) and min(every) > 0 and max(every) > 5 * min(every)
    step_name = "round" if "by round" in panel["metric"] else "step"
    return Chart(title, marks, Axis(step_name, whole=True), Axis(log=steep))


def _share(label: str) -> Axis:
    return dataclasses.replace(UNIT, label=label)


def _roc(curves: Content) -> Chart:
    lines = [
        Curve(c["roc"]["false_positive_rate"], c["roc"]["true_positive_rate"], tone, f"{short(name)}  {c['auc']:.3f}")
        for tone, (name, c) in enumerate([*curves.items()][:DRAWN])
    ]
    title = "ROC curve, area" if len(curves) > 1 else "ROC curve"
    return Chart(title, [DIAGONAL, *lines], _share("false positive rate"), _share("true positive rate"))


def _precision_recall(curves: Content) -> Chart:
    marks: list[Mark] = [Rule(y=curve["share"]) for curve in curves.values() if len(curves) == 1]
    for tone, (name, curve) in enumerate([*curves.items()][:DRAWN]):
        pair, label = curve["precision_recall"], f"{short(name)}  {curve['average_precision']:.3f}"
        marks.append(Curve(pair["recall"], pair["precision"], tone, label))
    return Chart("Precision and recall", marks, _share("recall"), _share("precision"))


def _calibration(content: Content) -> Chart:
    weight, means = np.array(content["weight"]), content["mean_probability"]
    bars = [(x - 0.025, x + 0.025, 0.0, top) for x, top in zip(means, weight / weight.max() * 0.25, strict=True)]
    marks: list[Mark] = [Bars(bars, "pale", "rows"), DIAGONAL, Curve(means, content["share"], dots=True)]
    return Chart("Calibration", marks, _share(content["of"]), _share("share that is true"))


def _thresholds(content: Content) -> Chart:
    marks: list[Mark] = [Rule(x=content["best_f1"]["threshold"])]
    for tone, name in enumerate(("precision", "recall", "f1")):
        rows = [row for row in content["table"] if row[name] is not None]  # None: no probability is so high
        label = "F1" if name == "f1" else name
        marks.append(Curve([row["threshold"] for row in rows], [row[name] for row in rows], tone, label))
    return Chart("Decision threshold", marks, _share("threshold"), UNIT)


def _beside_diagonal(title: str, mark: Curve | Dots, x_axis: Axis, y_axis: Axis) -> Chart:
    numbers: Sequence[float] = [*mark.x, *mark.y]
    ends = [min(numbers), max(numbers)]
    return Chart(title, [Curve(ends, ends, "soft", dashed=True), mark], x_axis, y_axis)


def _residuals(content: Content) -> Chart:
    marks: list[Mark] = [Curve(*stairs(content["edges"], content["counts"]), filled=True), Rule(x=0.0)]
    return Chart("Residuals", marks, Axis("prediction minus label"), Axis("rows"))
