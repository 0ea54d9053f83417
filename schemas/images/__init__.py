"""Image files before they are decoded: listings, headers, limits, pairs."""

__all__ = ["file", "header", "limits", "listing", "pairs", "paths"]
