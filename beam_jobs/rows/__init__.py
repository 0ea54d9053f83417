"""The source for rows of any format, and its pipeline: read, analyze, read again, transform, encode."""

__all__ = ["children", "groups", "ranges", "read", "source"]
