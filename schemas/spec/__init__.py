"""The schema: what a YAML file declares of a dataset, and what follows from it alone."""

__all__ = [
    "differences",
    "features",
    "forms",
    "images",
    "kinds.base",
    "loader",
    "naming",
    "shipped",
    "split_hash",
    "table",
    "words",
]
