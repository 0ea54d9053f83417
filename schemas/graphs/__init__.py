"""TensorFlow graphs from elsewhere: read without TensorFlow, and refused if they could do more than compute."""

__all__ = ["check", "trust"]
