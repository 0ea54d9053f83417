"""What every job has, whatever its raw data: options, source, inputs, counts, progress and its display, workers."""

__all__ = [
    "accounting",
    "inputs",
    "options",
    "parity",
    "progress",
    "shuffle_plan",
    "source",
    "workers",
]
