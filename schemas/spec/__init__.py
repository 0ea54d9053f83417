"""The schema: what a YAML file declares of a dataset, and what follows from it alone."""

__all__ = [
    "cell_error",
    "command",
    "drift",
    "features",
    "forms",
    "image_keys",
    "image_options",
    "images",
    "kinds.base",
    "loader",
    "not_finite",
    "promotion",
    "raw_columns",
    "shipped",
    "split_hash",
    "strict",
    "table",
]
