"""Synthetic sample files, in the shape of the datasets whose schemas ship."""

__all__ = ["command", "images", "tables"]
