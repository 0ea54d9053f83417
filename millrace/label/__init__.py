"""Labels that came later, joined to the requests that a server has stored: files that preprocessing takes."""

__all__ = ["command"]
