"""What every job has, whatever its raw data: options, source, steps, counts, progress, turns."""

__all__ = [
    "accounting",
    "coders",
    "counting",
    "inputs",
    "options",
    "parity_files",
    "parity_sample",
    "progress",
    "shuffle_plan",
    "source",
    "steps",
    "turns",
    "worker_metrics",
]
