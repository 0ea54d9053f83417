"""What raw data shows of itself: a schema written from it, with the evidence, and a schema compared with new data."""

__all__ = ["command", "hashing"]
