"""Reads TensorFlow graphs of unknown origin without TensorFlow, and refuses graphs that can do more than compute."""

__all__ = [
    "allowed_ops",
    "check",
    "saved_model",
]
