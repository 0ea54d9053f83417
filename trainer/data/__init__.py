"""The input of a training: shards in, shuffled batches of (features, label) out."""

__all__ = ["epochs", "input_fn", "input_options", "labels", "pairs"]
