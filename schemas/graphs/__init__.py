"""Reads TensorFlow graphs of unknown origin without TensorFlow, and refuses those that can do more than compute."""

__all__ = [
    "check",
    "saved_model",
]
