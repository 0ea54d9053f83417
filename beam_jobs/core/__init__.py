"""What every job has, whatever its raw data: options, source, steps, counts, progress and its display, workers."""

__all__ = [
    "accounting",
    "coders",
    "counting",
    "display",
    "inputs",
    "options",
    "parity",
    "progress",
    "runner_options",
    "shuffle_plan",
    "source",
    "steps",
    "workers",
]
