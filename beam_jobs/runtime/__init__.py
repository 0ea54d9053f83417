"""One job from options to commit, the table of the kinds of raw data, and the runner that the job runs on."""

__all__ = ["beam_flags", "cluster_checks", "job", "job_checks", "new_run", "runner", "sources", "take_up"]
