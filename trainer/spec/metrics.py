"""The metric that selects the best model, and which of two values of it is the better one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError, did_you_mean

# Areas under a curve: without rows of both classes there is no curve, and TensorFlow's metrics give 0.
_OF_BOTH_CLASSES = ("auc", "auc_precision_recall")
_LOWER_IS_BETTER = re.compile(r"(.*[_/])?(loss|error|mae|mse|rmse)([_/].*)?")


def higher_is_better(metric: str) -> bool:
    """False if the metric's name contains the word loss, error, mae, mse or rmse, such as `average_loss`."""
    return not _LOWER_IS_BETTER.fullmatch(metric)


@dataclasses.dataclass(frozen=True)
class BestMetric:
    """The evaluation metric that selects the best model."""

    name: str
    higher: bool

    def improves(self, value: float, best: float | None) -> bool:
        """Whether `value` is better than `best`; false for NaN."""
        if math.isnan(value):
            return False
        return best is None or (value > best if self.higher else value < best)


def _undefined(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics that rows of one class leave undefined; `label/mean`, of every model of two classes, tells that."""
    return _OF_BOTH_CLASSES if metrics.get("label/mean") in (0, 1) else ()


def defined(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `Estimator.evaluate`, with NaN for the areas under a curve if all its rows are of one class."""
    undefined = _undefined(metrics)
    return {name: math.nan if name in undefined else value for name, value in metrics.items()}


def best_metric(metrics: Mapping[str, Any], name: str | None = None) -> BestMetric:
    """The metric `name`, or else the loss for an example: `average_loss`, or `loss` of a model that has no other.

    Raises:
      UsageError: the evaluation has no such metric.
    """
    found = next((n for n in ((name,) if name else ("average_loss", "loss")) if n in metrics), None)
    if found is None:
        known = sorted(n for n in metrics if n != "global_step")
        hint = did_you_mean(name or "", known)
        raise UsageError(
            f"the evaluation has no metric {name or 'average_loss'!r} to select the best model by{hint or ';'} "
            f"it has {', '.join(known)}"
        )
    return BestMetric(found, higher_is_better(found))
