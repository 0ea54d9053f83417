"""Rows as a source, whatever format they are in: read twice, analyzed, transformed, encoded."""

__all__ = ["replay", "source"]
