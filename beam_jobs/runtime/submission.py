"""Submits a pipeline to a runner that works in other processes."""

from __future__ import annotations

from collections.abc import Callable

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners import DataflowRunner, PipelineRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_jobs.core.runner_options import RunnerOptions
from beam_jobs.runtime import asking, dataflow_errors, dataflow_job, portable_job, worker_errors
from beam_jobs.runtime.dataflow_job import DataflowJob
from beam_jobs.runtime.portable_job import PortableJob
from beam_jobs.runtime.remote_job import RemoteJob
from schemas.errors import MillraceError


def submit(
    options: RunnerOptions, given: PipelineOptions, runner: PipelineRunner, build: Callable[[beam.Pipeline], None]
) -> RemoteJob | None:
    """Builds the pipeline and submits it.

    Args:
      options: the job's.
      given: those of Beam.
      runner: the runner.
      build: adds the steps to a pipeline.

    Returns:
      The job that a runner works on; None if the runner has finished it.

    Raises:
      MillraceError: a service does not answer or did not accept the job, or a step failed.
    """
    noted: list[PortableJob] = []
    place = portable_job.endpoint(given) or f"{options.runner} on this machine"
    if isinstance(runner, PortableRunner):
        portable_job.check_endpoint(given)

        def note(service: object, job_id: str) -> None:
            if isinstance(service, beam_job_api_pb2_grpc.JobServiceStub):  # else Beam itself asks the cluster
                noted.append(PortableJob(service, job_id, place))

        runner = portable_job.noting(runner, note)
    if isinstance(runner, DataflowRunner):
        dataflow_job.check_credentials(asking.reference(options.runner, options.beam_args, "", ""))
    pipeline = beam.Pipeline(runner=runner, options=given)
    build(pipeline)
    try:
        result = pipeline.run()
        if noted:
            return noted[0]
        if isinstance(runner, DataflowRunner):
            if not result.has_job:  # the pipeline was written to --template_location; see beam_jobs.flex_template
                return None
            cloud = given.view_as(GoogleCloudOptions)
            place = dataflow_job.console(cloud.project, cloud.region, result.job_id())
            return DataflowJob(asking.reference(options.runner, options.beam_args, result.job_id(), place))
        state = result.wait_until_finish()
    except Exception as error:
        raise worker_errors.raised(error) or _refusal(error, options, runner, place) or error from error
    if state not in (None, "DONE"):
        raise MillraceError(f"the pipeline ended in the state {state}; see the log of the runner")
    return None


def _refusal(error: Exception, options: RunnerOptions, runner: PipelineRunner, place: str) -> MillraceError | None:
    """One line about a service that did not accept the job; None for other errors."""
    if isinstance(runner, DataflowRunner):
        job = asking.reference(options.runner, options.beam_args, "", "")
        said = dataflow_errors.explain(error)
        return None if said is None else MillraceError(f"{job.place}: the job was not accepted: {said}")
    if not isinstance(error, grpc.RpcError):
        return None
    details = " ".join(str(error.details() if isinstance(error, grpc.Call) else error).split())
    if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.UNAVAILABLE:  # it answered `check_endpoint`
        return MillraceError(
            f"{place}: the job service went away while the job was being submitted ({details}). See its log; nothing "
            "was committed."
        )
    return MillraceError(f"{place}: the job was not accepted: {details}")
