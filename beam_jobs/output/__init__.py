"""From transformed batches to a committed dataset: encode, shuffle into shards, check, commit, clean up."""

__all__ = [
    "accounts",
    "base",
    "cleanup",
    "commit",
    "contents",
    "data_report",
    "drift",
    "encode",
    "joined",
    "kept_files",
    "manifest_inputs",
    "pipeline_end",
    "result",
    "run_files",
    "tfrecord_frames",
]
