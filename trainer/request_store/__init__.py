"""The requests that a server answered, stored before the answers leave; and labels that are joined to them later."""

__all__ = ["joining", "labels", "options", "reading", "store"]
