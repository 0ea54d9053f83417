"""Predictions beside labels: how a model errs, by class, by slice and by row; and two models on the same rows.

An evaluation's batches come in through `watch`, raw rows through `scoring`; both make a table of `predictions`. All
else is a function of it: `metrics` with their standard errors, the content of a `report`, its `slices`.
"""

__all__ = [
    "learning_curves",
    "metrics",
    "page",
    "predictions",
    "report",
    "scoring",
    "slices",
    "versus",
    "watch",
]
