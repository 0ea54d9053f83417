"""The runners that pipelines run on: in this process, behind a job service, on Dataflow; and jobs submitted to them."""

__all__ = ["checks", "dataflow", "jobs", "portable", "remote_job", "runner"]
