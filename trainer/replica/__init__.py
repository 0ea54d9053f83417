"""One process of a submitted training: it finds its role, trains, and waits for the other processes."""

__all__ = ["command"]
