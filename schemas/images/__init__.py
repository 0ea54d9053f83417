"""Image files before they are decoded: listings, headers, limits, pairs."""

__all__ = ["header", "listing", "pairs", "reading"]
