"""Chooses the metric that selects the best model, knows whether higher or lower is better, and formats metrics."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import UsageError, did_you_mean

_LOWER_IS_BETTER = re.compile(r"(.*[_/])?(loss|error|mae|mse|rmse)([_/].*)?")


def higher_is_better(metric: str) -> bool:
    """Returns whether a higher value of a metric is better.

    This is False if the metric's name contains the word loss, error, mae, mse or rmse, such as `average_loss`.
    """
    return not _LOWER_IS_BETTER.fullmatch(metric)


@dataclasses.dataclass(frozen=True)
class BestMetric:
    """The evaluation metric that selects the best model.

    Attributes:
      name: the metric's name.
      higher: whether a higher value is better.
    """

    name: str
    higher: bool

    def improves(self, value: float, best: float | None) -> bool:
        """Returns whether `value` is better than `best`; false for NaN."""
        if math.isnan(value):
            return False
        return best is None or (value > best if self.higher else value < best)


def best_metric(metrics: Mapping[str, Any], name: str | None = None) -> BestMetric:
    """Returns the metric that selects the best model.

    Args:
      metrics: the metrics of an evaluation by name.
      name: the name of the metric. None: the loss, preferably the mean over examples weighed as in training, else the
        mean over examples, else over a batch.

    Raises:
      UsageError: the evaluation has no such metric.
    """
    names = (name,) if name else ("balanced_loss", "average_loss", "loss")
    metric_name = next((n for n in names if n in metrics), None)
    if metric_name is None:
        metric_names = sorted(n for n in metrics if n != "global_step")
        hint = did_you_mean(name or "", metric_names)
        raise UsageError(
            f"the evaluation has no metric {name or 'average_loss'!r} to select the best model by{hint or ';'} "
            f"it has {', '.join(metric_names)}"
        )
    return BestMetric(metric_name, higher_is_better(metric_name))


_OF_CLASS = ("auc_precision_recall", "precision", "recall")
REGRESSION = {"rmse": "RMSE", "mae": "MAE", "r2": "R2"}
_OTHER_UNITS = ("average_loss", "loss")  # a regression's losses are in squared units of the label


def figure(value: float | None, digits: int = 4) -> str:
    """Formats a metric with four digits, or as a whole number from 1,000 on.

    Examples are 0.9312 and 30,812. None and NaN become "undefined".
    """
    if value is None or math.isnan(value):
        return "undefined"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.{digits}g}"


def described(metrics: Mapping[str, float], positive: str | None, names: Sequence[str] = ()) -> str:
    """Formats metrics for the terminal: `accuracy 0.97, recall of "ja" 0.31`.

    The text also compares the model with a guess that uses no features.

    Args:
      metrics: the metrics of an evaluation by name.
      positive: the class for which binary metrics are computed; None if the label does not have two classes.
      names: the metrics to show, in this order; empty: all of them.
    """
    shown = [name for name in names or metrics if name in metrics and name != "global_step"]
    parts, notes = [], []
    regression = "rmse_baseline" in metrics
    if regression:
        shown = [*REGRESSION, *(name for name in shown if name not in (*REGRESSION, *_OTHER_UNITS))]
    for name in shown:
        if name in ("rmse_baseline", "label/mean", "prediction/mean"):
            continue
        of_class = f' of "{positive}"' if positive is not None and name in _OF_CLASS else ""
        parts.append(f"{REGRESSION.get(name, name) if regression else name}{of_class} {figure(metrics[name])}")
    if not names and "prediction/mean" in metrics and "label/mean" in metrics:
        mean, label = metrics["prediction/mean"], metrics["label/mean"]
        if regression:
            notes.append(f"the predictions are {figure(mean)} on average, and the labels {figure(label)}")
        elif positive is not None:
            share = f"its share of the rows is {figure(label)}"
            notes.append(f'the mean probability of "{positive}" is {figure(mean)}, and {share}')
    accuracy, most_frequent = metrics.get("accuracy"), metrics.get("accuracy_baseline")
    if accuracy is not None and most_frequent is not None and accuracy <= most_frequent:
        always = f"always predicting the most frequent class has an accuracy of {figure(most_frequent)}"
        notes.append(f"{'no better' if accuracy == most_frequent else 'worse'} than the baseline: {always}")
    if regression:
        worse = "worse than the baseline: " if metrics["rmse"] >= metrics["rmse_baseline"] else ""
        notes.append(f"{worse}always predicting the mean has an RMSE of {figure(metrics['rmse_baseline'])}")
    return "; ".join((", ".join(parts), *notes))
