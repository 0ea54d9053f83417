"""Asks the runner about a submitted job, from any process, by the job's reference in the lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from beam_jobs.core.options import RunnerOptions
from beam_jobs.engines.checks import is_dataflow, read_flags
from beam_jobs.engines.dataflow import DataflowJob
from beam_jobs.engines.remote_job import ENDED, RemoteJob, State, Unreachable
from schemas.dataset.holders import JobReference, RemoteHolder
from schemas.errors import MillraceError

Answer = TypeVar("Answer")


def reference(options: RunnerOptions, job_id: str = "", url: str | None = None) -> JobReference:
    """Returns what a job is found by later: its id and, where it has none yet, its `--job_name`."""
    flags = read_flags(options.beam_args)
    if not is_dataflow(options.runner):
        return JobReference(runner="PortableRunner", id=job_id, name=flags.job_name, endpoint=flags.job_endpoint)
    return JobReference(
        runner="DataflowRunner",
        id=job_id,
        name=flags.job_name,
        url=url,
        project=flags.project,
        region=flags.region,
        endpoint=flags.dataflow_endpoint,
        no_auth=flags.no_auth,
        impersonate=flags.impersonate_service_account,
    )


def ask(job: JobReference, question: Callable[[RemoteJob], Answer]) -> Answer:
    """Asks the runner about a job.

    Raises:
      MillraceError: the runner does not answer, or does not know the job.
    """
    try:
        return question(_connected(job))
    except MillraceError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, Unreachable) else f"{type(error).__name__}: {error}"
        place = job.endpoint or f"project {job.project}, region {job.region}"
        raise MillraceError(f"{job}: {place} cannot be asked: {' '.join(reason.split())[:500]}") from error


def state(job: JobReference) -> State:
    """Asks how a job is doing. Raises MillraceError if its runner does not answer."""
    return ask(job, lambda remote: ENDED.get(remote.state(), "running"))


def has_ended(holder: RemoteHolder) -> bool:
    """Asks the runner whether the job that holds a lease has ended. See `state` for errors."""
    return state(holder.job) != "running"


def _connected(job: JobReference) -> RemoteJob:
    if job.runner == "DataflowRunner":
        return DataflowJob(job)
    import grpc
    from apache_beam.runners.portability.job_server import ExternalJobServer

    from beam_jobs.engines.portable import ANSWER_SECONDS, find

    try:
        service = ExternalJobServer(job.endpoint, timeout=ANSWER_SECONDS).start()
    except grpc.FutureTimeoutError as error:
        raise Unreachable(f"no job service answered within {ANSWER_SECONDS:g} s; start it, if it has ended") from error
    return find(service, job)
