"""Measures for `trainer.doctor`: a training, the stages of its input, and the input with other settings."""

__all__ = ["diagnosis", "examination", "turns"]
