"""One run of a job: lease, stage, execute, check the accounts, commit, report, clean up.

Options enter and a manifest leaves. A run writes a dataset, adds new input to one, measures it anew, or replays its
rejects. One that a cluster executes is submitted, and reattached to by whoever commits it.
"""

__all__ = [
    "append",
    "commit",
    "data_report",
    "data_warnings",
    "job",
    "known",
    "merge",
    "reattach",
    "replay",
    "run",
    "submit",
    "write",
]
