"""Asks the runner about a submitted job. Any process can do this, with the job's reference from the lease."""

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
    """Returns the reference by which a job is found later.

    Args:
      options: the options of the job, with its `--job_name`.
      job_id: the runner's id of the job; '' before the job is submitted. The job is then found by its name.
      url: the address of the job's page; None: it has no page, or is not submitted yet.
    """
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
    """Connects to the runner of a job, and returns the answer of `question`.

    Args:
      job: the reference of the job.
      question: takes the connected job, such as `lambda remote: remote.state()`.

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
    """Asks the runner for the state of a job. Raises MillraceError if the runner does not answer."""
    return ask(job, lambda remote: ENDED.get(remote.state(), "running"))


def has_ended(holder: RemoteHolder) -> bool:
    """Asks the runner whether the job that holds a lease has ended. Raises MillraceError if it does not answer."""
    return state(holder.job) != "running"


def _connected(job: JobReference) -> RemoteJob:
    """Connects to the runner of a job. Raises Unreachable if no job service answers, or the service lacks the job."""
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
