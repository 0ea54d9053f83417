"""Predictions beside labels: how a model errs, by class, by slice and by row; and two models on the same rows.

An evaluation's batches come in through `watch`, raw rows through `scoring`. Out come metrics with their
standard errors, for the gate of `trainer.promotion`, and a report as HTML, JSON and pictures: `report` and `page`;
of two models `versus`.
"""

__all__ = [
    "metrics",
    "page",
    "predictions",
    "report",
    "scoring",
    "slices",
    "versus",
    "watch",
]
