"""Submitted jobs by their references: any process can ask the runner about one, or cancel it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from beam_jobs.engines import remote_job
from beam_jobs.engines.checks import is_dataflow, read_flags
from beam_jobs.engines.dataflow import DataflowJob
from beam_jobs.engines.remote_job import RemoteJob, Unreachable
from schemas.dataset import layout
from schemas.dataset.holders import HasEnded, JobReference, RemoteHolder, read_submitted
from schemas.dataset.lease import LeaseError
from schemas.errors import MillraceError
from schemas.storage import folders

State = Literal["running", "done", "failed", "cancelled"]

# All other states of either runner are on the way to one of these.
_ENDED: dict[str, State] = {
    "DONE": "done",
    "FAILED": "failed",
    "STOPPED": "failed",
    "CANCELLED": "cancelled",
    "UPDATED": "failed",  # replaced by another job, which is not this one
    "DRAINED": "failed",  # a batch job that was drained has not read all of its input
}


class SubmittedJob:
    """A job that is asked about by its reference. Methods raise MillraceError where the runner does not answer."""

    def __init__(self, reference: JobReference) -> None:
        self._reference = reference

    def state(self) -> State:
        """How it is doing."""
        with _answers(self._reference):
            return _ENDED.get(self._job.state(), "running")

    def counters(self) -> Mapping[str, int]:
        """What its workers have counted, by `beam_jobs.core.workers`; nothing where the runner does not say."""
        with contextlib.suppress(MillraceError), _answers(self._reference):
            return self._job.counters()
        return {}

    def cancel(self) -> None:
        """Asks the runner to cancel it; it ends some time later. Does nothing if it has ended."""
        if self.state() == "running":
            with _answers(self._reference):
                self._job.cancel()

    def errors(self) -> Sequence[str]:
        """The messages of its errors, the oldest first."""
        with _answers(self._reference):
            return self._job.errors()

    @functools.cached_property
    def _job(self) -> RemoteJob:
        return _connected(self._reference)


def reference(runner: str, beam_args: Sequence[str], job_id: str, place: str) -> JobReference:
    """By what a job is asked about later.

    Args:
      runner: the runner's name.
      beam_args: Beam's options.
      job_id: the runner's name for the job; '' if it has none yet, and is found by its `--job_name`.
      place: where a person finds the job.
    """
    flags = read_flags(beam_args)
    if not is_dataflow(runner):
        return JobReference(runner="PortableRunner", id=job_id, name=flags.job_name, endpoint=flags.job_endpoint)
    return JobReference(
        runner="DataflowRunner",
        id=job_id,
        name=flags.job_name,
        url=place or None,
        project=flags.project,
        region=flags.region,
        endpoint=flags.dataflow_endpoint,
        no_auth=flags.no_auth,
        impersonate=flags.impersonate_service_account,
    )


def job_of(job: JobReference) -> SubmittedJob:
    """The job, ready to be asked about."""
    return SubmittedJob(job)


def has_ended_in(data_dir: str) -> HasEnded:
    """For the lease on a dataset directory: asks the runner about the job that holds it.

    A job that is done keeps its lease until its result is committed, or thrown away by `millrace job cancel --force`.
    """

    def has_ended(holder: RemoteHolder) -> bool:
        submitted = read_submitted(data_dir, holder.run)
        if submitted is None:
            raise MillraceError(f"{layout.join(data_dir, holder.run, layout.JOB)}: missing")
        state = job_of(submitted.job).state()
        manifest = folders.look(layout.join(data_dir, layout.MANIFEST)).data
        if state == "done" and submitted.replaces.is_still(manifest):
            raise LeaseError(
                f"{data_dir}: run {holder.run} ({submitted.job}) is done and waits for its commit. "
                f"`millrace job commit --output {data_dir}` commits it; `millrace job cancel --output {data_dir} "
                "--force` throws it away."
            )
        return state != "running"

    return has_ended


def failure(job: JobReference, state: State) -> MillraceError:
    """The error that a job ended with: the one that a worker raised, or one line about any other."""
    if state == "cancelled":
        return MillraceError(f"{job} was cancelled; nothing was committed")
    texts = job_of(job).errors()
    return remote_job.reported(texts) or MillraceError(f"{job} failed, {remote_job.cause(texts)}")


def _connected(job: JobReference) -> RemoteJob:
    if job.runner == "DataflowRunner":
        return DataflowJob(job)
    import grpc
    from apache_beam.runners.portability.job_server import ExternalJobServer

    from beam_jobs.engines.portable import ANSWER_SECONDS, PortableJob

    try:
        service = ExternalJobServer(job.endpoint, timeout=ANSWER_SECONDS).start()
    except grpc.FutureTimeoutError as error:
        raise Unreachable(f"no job service answered within {ANSWER_SECONDS:g} s; start it, if it has ended") from error
    found = PortableJob(service, job.id, job.endpoint or "", job.name)
    found.check()
    return found


@contextlib.contextmanager
def _answers(job: JobReference) -> Iterator[None]:
    """Turns whatever keeps a runner from answering into one line."""
    try:
        yield
    except MillraceError:
        raise
    except Exception as error:
        said = str(error) if isinstance(error, Unreachable) else f"{type(error).__name__}: {error}"
        where = job.endpoint or f"project {job.project}, region {job.region}"
        raise MillraceError(f"{job}: {where} cannot be asked: {' '.join(said.split())[:500]}") from error
