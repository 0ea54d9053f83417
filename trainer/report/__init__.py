"""The report of an evaluation: how a model errs, by class, by slice and by row, as HTML, JSON and pictures."""

__all__ = [
    "budget",
    "collect",
    "feature_parts",
    "figures",
    "hook",
    "learning",
    "model_report",
    "predicting",
    "ranking",
    "write",
]
