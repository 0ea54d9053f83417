"""Predictions as files: their columns, their text as JSON and CSV, and the manifest of a folder of them."""

__all__ = ["encoding", "manifest"]
