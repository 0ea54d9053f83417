"""Prepares images for a model: augments, normalises and shows them."""

__all__ = [
    "augment",
    "inputs",
    "summaries",
]
