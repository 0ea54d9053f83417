"""Works with image files before they are decoded: lists them, reads their headers, and checks limits."""

__all__ = ["header", "listing", "reading"]
