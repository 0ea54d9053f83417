"""Image files before they are decoded: listings, headers, limits."""

__all__ = ["header", "listing", "reading"]
