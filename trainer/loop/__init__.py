"""The training loop: train, evaluate, stop early, export, and end cleanly."""

__all__ = ["boosting", "building", "checks", "early_stopping", "evaluations", "plan", "train"]
