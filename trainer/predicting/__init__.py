"""Predicts files of rows and images with an exported model, and writes JSON lines."""

__all__ = ["atomic_file", "images", "options", "rows"]
