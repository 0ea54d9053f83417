"""The metrics of predicted numbers, by their definitions in scikit-learn, and their residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainer.report.class_metrics import Metrics
from trainer.report.collect import ValueCollector
from trainer.report.ranking import quotient

BARS = 40  # of the histogram of residuals
DOTS = 1000  # rows in the picture of predictions against labels
GROUPS = 10  # of rows by their prediction
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def value_metrics(found: ValueCollector) -> Metrics:
    """The metrics of the whole split."""
    metrics = Metrics()
    weight, label, squared, residual, size, square = found.sums.tolist()
    nothing = "no row has a prediction" if found.rows else "the split has no rows"
    spread = squared - label**2 / weight if weight else 0.0
    metrics.put("mean_absolute_error", quotient(size, weight), otherwise=nothing)
    metrics.put("root_mean_squared_error", math.sqrt(square / weight) if weight else None, otherwise=nothing)
    same = "every label of the split is the same number" if weight else nothing
    r2 = 1 - square / spread if spread > 1e-12 * max(squared, 1e-300) else None
    metrics.put("r2", r2, otherwise=same)
    metrics.put("mean_residual", quotient(residual, weight), otherwise=nothing)
    deviation = math.sqrt(spread / weight) if weight and spread > 0 else None
    metrics.put("error_of_always_the_mean", deviation, otherwise=same)
    return metrics


def value_content(found: ValueCollector) -> dict[str, Any]:
    """Everything about an evaluation of numbers, as JSON holds it: metrics, residuals, predictions by group."""
    metrics = value_metrics(found)
    usable = np.isfinite(found.kept["loss"])
    labels = found.kept["label"][usable].astype(np.float64)
    values = found.kept["score"][usable].astype(np.float64)
    content: dict[str, Any] = {"kind": "values", "metrics": metrics.values, "undefined": metrics.undefined}
    if not len(labels):
        return content
    residuals = values - labels
    metrics.put("median_absolute_error", float(np.median(np.abs(residuals))), otherwise="")
    # The outermost hundredths would leave the histogram one bar: they are counted in its first and last one.
    low, high = np.quantile(residuals, [0.005, 0.995])
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, edges = np.histogram(np.clip(residuals, low, high), BARS, (low, high))
    dots = np.linspace(0, len(labels) - 1, min(DOTS, len(labels))).astype(int)  # the split is shuffled
    content["residuals"] = {
        "quantiles": dict(zip(map(str, QUANTILES), np.quantile(residuals, QUANTILES).tolist(), strict=True)),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "rows": len(residuals),
    }
    content["rows_shown"] = {"label": labels[dots].tolist(), "prediction": values[dots].tolist()}
    content["groups"] = [
        {
            "rows": len(group),
            "mean_prediction": float(values[group].mean()),
            "mean_label": float(labels[group].mean()),
            "root_mean_squared_error": float(np.sqrt(np.mean(residuals[group] ** 2))),
        }
        for group in np.array_split(np.argsort(values, kind="stable"), min(GROUPS, len(values)))
    ]
    return content
