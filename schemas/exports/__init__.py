"""Exported models as far as they are read without TensorFlow: their notes, and what their answers mean."""

__all__ = [
    "notes",
]
