"""The input of a training: shards in, shuffled batches of (features, label) out."""

__all__ = ["input_fn", "input_options", "reading"]
