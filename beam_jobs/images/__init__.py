"""Image files as a source: listed, decoded once, stored as they are, measured on the way."""

__all__ = ["facts", "pipeline", "reader", "source"]
