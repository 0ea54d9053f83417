"""Writes transformed batches as TFRecord shards: encodes the records, shuffles them and writes them.

The shuffle runs in this process (`fragments`) or is the runner's own, on a cluster (`shuffle`). The outputs of the room
are shards, files with the counts of all records, and the result file that the commit reads. The module `existing` reads
and copies the files of a dataset that a run adds records to.
"""

__all__ = ["accounts", "encode", "examples", "existing", "fragments", "result", "shards", "shuffle"]
