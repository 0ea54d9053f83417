"""The metric that selects the best model, and which of two values of it is the better one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError, did_you_mean

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


def names_of(metric: str | None) -> tuple[str, ...]:
    """The names that a metric can have in an evaluation; None: the loss for an example, or of a batch.

    Where classes are weighed in training, it is the loss with these weights.
    """
    return (metric,) if metric else ("balanced_loss", "average_loss", "loss")


def best_metric(metrics: Mapping[str, Any], name: str | None = None) -> BestMetric:
    """The metric `name`, or else the first of `names_of(None)` that there is.

    Raises:
      UsageError: the evaluation has no such metric.
    """
    found = next((n for n in names_of(name) if n in metrics), None)
    if found is None:
        known = sorted(n for n in metrics if n != "global_step")
        hint = did_you_mean(name or "", known)
        raise UsageError(
            f"the evaluation has no metric {name or 'average_loss'!r} to select the best model by{hint or ';'} "
            f"it has {', '.join(known)}"
        )
    return BestMetric(found, higher_is_better(found))
