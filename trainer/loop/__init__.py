"""The training loop: train, evaluate, stop early, export, and end cleanly."""

__all__ = ["progress", "signals", "train"]
