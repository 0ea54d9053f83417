"""The metric that selects the best model, and which of two values of it is the better one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.dataset import Dataset
from schemas.errors import UsageError
from schemas.spec.features import CategoryLabel

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


def best_metric(dataset: Dataset, metrics: Mapping[str, Any], name: str | None = None) -> BestMetric:
    """The metric `name`, or else the first available of `auc`, `accuracy` (for classes), `average_loss` and `loss`.

    Where all rows are of one class, `auc` is chosen only by its name. `higher_is_better` says which of two values is
    the better one.

    Raises:
      UsageError: the evaluation has no such metric.
    """
    wanted: tuple[str, ...] = ("average_loss", "loss")
    if has_classes(dataset):
        wanted = ("auc", "accuracy", *wanted)
    undefined = _undefined(metrics)
    found = next((n for n in ((name,) if name else wanted) if n in metrics and (n == name or n not in undefined)), None)
    if found is None:
        known = ", ".join(sorted(n for n in metrics if n != "global_step"))
        missing = repr(name or wanted[0])
        raise UsageError(f"the evaluation has no metric {missing} to select the best model by; it has {known}")
    return BestMetric(found, higher_is_better(found))


def has_classes(dataset: Dataset) -> bool:
    """Whether the label is one of several classes, rather than a number."""
    return dataset.image_schema is not None or isinstance(dataset.schema.label, CategoryLabel)
