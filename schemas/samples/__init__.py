"""Synthetic sample files, in the shape of the data sets whose schemas ship."""

__all__ = ["command", "images", "tables"]
