"""Rows and image files through an exported model, to JSON lines."""

__all__ = ["atomic_file", "images", "options", "rows"]
