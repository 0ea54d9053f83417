"""The source for rows of any format, and its pipeline: read, analyze, read again, transform, encode."""

__all__ = ["groups", "ranges", "read", "source", "steps"]
