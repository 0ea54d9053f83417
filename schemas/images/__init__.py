"""Image files before they are decoded: which there are, what their headers say, and what is refused."""

__all__ = ["file", "header", "limits", "listing", "pairs", "paths"]
