"""What every job has, whatever its raw data: options, source, steps, counts, progress."""

__all__ = [
    "accounting",
    "coders",
    "counting",
    "interrupts",
    "options",
    "parity_files",
    "parity_sample",
    "progress",
    "shuffle_plan",
    "source",
    "steps",
]
