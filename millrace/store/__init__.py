"""The requests that a server answered, stored before the answers leave. `millrace.label` reads them again."""

__all__ = [
    "columns",
    "folder",
    "ids",
    "segments",
    "store",
]
