"""Asks about the last job on an output folder, or cancels it: a job on a cluster can run without its launcher."""

from __future__ import annotations

import dataclasses

from beam_jobs.engines import jobs, remote_job
from beam_jobs.runs.execute import discard, given_up, no_raw_bytes
from beam_jobs.runs.failed import committed_run, last_failed
from beam_jobs.runs.run import NewRun
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.holders import JobReference, RemoteHolder
from schemas.dataset.lease import LeaseError, holder_of
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders

CANCEL_SECONDS = 600.0  # the longest time that a cancelled job may take to end


@dataclasses.dataclass(frozen=True)
class Status:
    """The status of the last job on an output folder.

    Attributes:
      run: the run that the job writes.
      state: the state of the job, such as "running", "failed" or "committed".
      next: what the user can do now.
      job: the job that holds the lease; None if no job on a cluster holds the lease.
    """

    run: str
    state: str
    next: str
    job: JobReference | None = None


def status(output: str) -> Status:
    """Returns the status of the last job on an output folder.

    If a job on a cluster holds the lease, asks its runner. Otherwise the files tell: a run that has failed since the
    last commit, or else the run that was committed.

    Raises:
      UsageError: the folder shows no job at all.
      MillraceError: the runner does not answer.
    """
    holder = _holder(output)
    if holder is not None:
        state = jobs.state(holder.job)
        after = "the next job on this folder, or millrace job cancel, removes its files"
        return Status(holder.run, state, "millrace job cancel ends it" if state == "running" else after, holder.job)
    failed = last_failed(output)
    if failed is not None:
        run, reason = failed
        return Status(run, "failed", f"correct what is wrong, and begin again: {reason}")
    committed = committed_run(output)
    if committed is not None:
        return Status(committed, "committed", "nothing: what it has written is there")
    raise UsageError(f"{output}: no job was found here; `millrace preprocess --no_wait` submits one")


def cancel(output: str) -> tuple[str, str]:
    """Cancels the job that holds the lease, waits until the job has ended, and deletes its run.

    Returns:
      The name of the run, and a message about the outcome.

    Raises:
      UsageError: no job on a cluster holds the lease.
      LeaseError: the job has committed its run, which stays.
      MillraceError: the runner does not answer, or the job did not end in time; the lease stays.
    """
    holder = _holder(output)
    if holder is None:
        raise UsageError(f"{output}: no job on a cluster is writing to it, so there is nothing to cancel")
    state = jobs.ask(holder.job, lambda job: remote_job.end(job, seconds=CANCEL_SECONDS, quiet=True))
    run = NewRun(output, holder.run, folders.look(layout.join(output, layout.MANIFEST)))
    error = MillraceError(f"run {run.id} was ended by `millrace job cancel`")
    with given_up(run):
        if run.is_committed():
            raise LeaseError(f"{output}: run {run.id} is committed")
        note = discard(run, error, no_raw_bytes)
    became = {"cancelled": "has been cancelled", "done": "was done, without a commit"}.get(state, "had failed")
    return run.id, f"{holder.job} {became}; run {run.id} was removed{note}"


def _holder(output: str) -> RemoteHolder | None:
    """The job on a cluster that holds the lease on `output`; None if the lease is free or a process holds it."""
    storage.check_scheme(output, "--output ")
    layout.check_directory(output)
    holder = holder_of(output)
    return holder if isinstance(holder, RemoteHolder) else None
