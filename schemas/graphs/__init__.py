"""Reads TensorFlow graphs of unknown origin without TensorFlow, and refuses those that can do more than compute."""

__all__ = [
    "allowed_ops",
    "check",
    "saved_model",
]
