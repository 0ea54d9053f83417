"""Runs a job: takes the lease on the output, stages the input, runs the pipeline and reports.

The last step of the pipeline commits the run: it writes the manifest. A run writes a new dataset, or adds new input or
corrected rejects to an existing dataset.
"""

__all__ = [
    "append",
    "commit",
    "corrections",
    "data_report",
    "drift",
    "execute",
    "failed",
    "job",
    "known",
    "last_step",
    "merge",
    "run",
    "submitted",
    "write",
]
