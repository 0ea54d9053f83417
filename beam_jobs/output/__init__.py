"""From transformed batches to a committed dataset: encode, shuffle into shards, check, commit, clean up."""

__all__ = [
    "accounts",
    "cleanup",
    "commit",
    "data_report",
    "drift",
    "encode",
    "manifest_inputs",
    "pipeline_end",
    "result",
    "tfrecord_frames",
]
