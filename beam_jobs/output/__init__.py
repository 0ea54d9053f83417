"""From transformed batches to a committed dataset: encode, shuffle into shards, check, commit, clean up."""

__all__ = [
    "accounts",
    "cleanup",
    "commit",
    "data_report",
    "drift",
    "encode",
    "existing",
    "joined",
    "pipeline_end",
    "result",
    "run_files",
    "tfrecord_frames",
]
