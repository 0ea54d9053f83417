"""One run of a job: take the lease, stage the input, run the pipeline, whose last step commits, and report.

Options enter and a manifest leaves. A run writes a dataset, or adds new input or corrected rejects to one.
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
