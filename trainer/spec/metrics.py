"""Which of two values of a metric is the better one, by the metric's name."""

from __future__ import annotations

import re

_LOWER_IS_BETTER = re.compile(r"(.*[_/])?(loss|error|mae|mse|rmse)([_/].*)?")


def higher_is_better(metric: str) -> bool:
    """False if the metric's name contains the word loss, error, mae, mse or rmse, such as `average_loss`."""
    return not _LOWER_IS_BETTER.fullmatch(metric)
