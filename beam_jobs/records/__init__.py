"""Transformed batches as TFRecords: encoded, shuffled and written in shards, here or by a cluster's shuffle."""

__all__ = ["encode", "examples", "fragments", "shards", "shuffle"]
