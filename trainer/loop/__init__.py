"""The training loop: train, evaluate, stop early, export, and end cleanly."""

__all__ = ["building", "checks", "display", "early_stopping", "evaluations", "train"]
