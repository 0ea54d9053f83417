"""Images in a model: augmented, normalised and shown."""

__all__ = [
    "augment",
    "inputs",
    "summaries",
]
