"""Raw files as a side of a comparison: read through a dataset's schema, and described as its job described them."""

__all__ = ["images", "raw", "rows"]
