"""Transformed batches as TFRecords: encoded, shuffled and written in shards, here or by a cluster's shuffle.

A pipeline's encoded records enter; shards, the counts of all records and the result file leave. `existing` is a
dataset that a run adds to.
"""

__all__ = ["accounts", "encode", "examples", "existing", "fragments", "result", "shards", "shuffle"]
