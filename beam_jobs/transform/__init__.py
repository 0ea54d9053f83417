"""The transform: raw columns to features, measured and applied by tf.Transform."""

__all__ = [
    "analyze",
    "numeric",
    "observed",
    "preprocessing",
    "rejects",
    "vocabularies",
]
