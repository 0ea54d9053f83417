"""The transform: raw columns to features, measured and applied by tf.Transform."""

__all__ = ["analyze", "dense", "observed", "preprocessing", "rejects", "unique_values", "unseen", "write"]
