"""Generates synthetic sample files in the format of the datasets whose schemas ship."""

__all__ = ["command", "images", "tables"]
