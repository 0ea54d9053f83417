"""One run of a job: lease, stage, execute, check the accounts, commit, report, clean up.

Options enter and a manifest leaves. A run writes a dataset, adds new input to one, measures it anew, or replays its
rejects. One that a cluster executes commits in the last step of its pipeline, with or without its launcher.
"""

__all__ = [
    "append",
    "commit",
    "corrections",
    "data_report",
    "drift",
    "finish",
    "job",
    "known",
    "merge",
    "run",
    "write",
]
