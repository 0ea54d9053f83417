"""Image files before they are decoded: listings, headers, limits, pairs."""

__all__ = ["file", "header", "items", "limits", "listing", "pairs", "paths", "reading"]
