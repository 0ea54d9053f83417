"""The transform: raw columns to features, measured and applied by tf.Transform."""

__all__ = ["observed", "preprocessing", "rejects", "unique_values", "write"]
