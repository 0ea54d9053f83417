"""The transform: raw columns to features, measured and applied by tf.Transform."""

__all__ = [
    "numeric",
    "preprocessing",
    "rejects",
    "vocabularies",
    "write_transform",
]
