"""The schema of a dataset: reads its YAML file, checks it, and derives whatever follows from the schema alone."""

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
