"""One process of a submitted training: finds its role, trains, and waits for the other processes."""

__all__ = ["command"]
