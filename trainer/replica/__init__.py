"""One process of a training that was submitted as several: its role, its training, and waiting for the others."""

__all__ = ["command"]
