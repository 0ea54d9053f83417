"""The input of a training: shards in, shuffled batches of (features, label) out."""

__all__ = ["data_service", "host_features", "input_fn", "input_options", "position", "reading"]
