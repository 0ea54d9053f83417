"""Images in a model: augmented, normalised, measured and shown."""

__all__ = [
    "augment",
    "hooks",
    "inputs",
]
