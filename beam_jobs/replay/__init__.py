"""Replays: corrected rejects through the transform of the dataset that rejected them."""

__all__ = ["options", "run"]
