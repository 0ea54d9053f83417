"""Submits a pipeline, with a package of this code for its workers, to a runner that works in other processes."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, SetupOptions, WorkerOptions
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners import DataflowRunner, PipelineRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_jobs.core.options import RunnerOptions
from beam_jobs.engines import dataflow, jobs, portable, remote_job
from beam_jobs.engines.checks import is_dataflow
from beam_jobs.engines.dataflow import DataflowJob
from beam_jobs.engines.portable import PortableJob
from beam_jobs.engines.remote_job import RemoteJob
from schemas.errors import MillraceError, UsageError
from schemas.source_distribution import NAME, archive_name, folder_of, source_distribution

_OWN_PROJECT = re.compile(rf"""^name\s*=\s*["'](?:{NAME}|millrace)["']""", re.MULTILINE)  # the latter up to 0.2.0


@contextlib.contextmanager
def staged(runner: str, given: PipelineOptions) -> Iterator[None]:
    """Has Beam send this package to the workers, while the pipeline is submitted in the block.

    On Dataflow that is a package that is made here, unless `--sdk_container_image` names an image, which has it, or
    `--setup_file` is that of another copy of this project. On other runners nothing is added.

    Args:
      runner: the runner's name.
      given: Beam's options, which are changed.

    Raises:
      UsageError: there is no file that `--setup_file` names.
    """
    setup, worker = given.view_as(SetupOptions), given.view_as(WorkerOptions)
    if not is_dataflow(runner) or worker.sdk_container_image is not None:
        yield
        return
    project = _project(setup.setup_file)
    if project is not None and not _is_here(project):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="millrace-package-") as folder:
        path = os.path.join(folder, archive_name())
        with open(path, "wb") as file:
            file.write(source_distribution())
        if project is not None:  # Beam would build it in the checkout, and leave its traces there
            setup.setup_file = None
        setup.extra_packages = [*(setup.extra_packages or ()), path]
        yield


def _project(setup_file: str | None) -> str | None:
    """The folder of a --setup_file, if it is that of this project, here or in another copy."""
    if setup_file is None:
        return None
    folder = os.path.dirname(os.path.abspath(setup_file))
    if not os.path.isfile(setup_file):
        raise UsageError(f"--setup_file {setup_file}: no such file")
    try:
        with open(os.path.join(folder, "pyproject.toml"), encoding="utf-8") as file:
            return folder if _OWN_PROJECT.search(file.read()) else None
    except OSError:
        return None


def _is_here(project: str) -> bool:
    """Whether the modules that run here are those of the project in this folder."""
    return os.path.realpath(os.path.join(project, "beam_jobs")) == os.path.realpath(folder_of("beam_jobs"))


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
    place = portable.endpoint(given) or f"{options.runner} on this machine"
    if isinstance(runner, PortableRunner):
        portable.check_endpoint(given)

        def note(service: object, job_id: str) -> None:
            if isinstance(service, beam_job_api_pb2_grpc.JobServiceStub):  # else Beam itself asks the cluster
                noted.append(PortableJob(service, job_id, place))

        runner = portable.noting(runner, note)
    if isinstance(runner, DataflowRunner):
        dataflow.check_credentials(jobs.reference(options.runner, options.beam_args, "", ""))
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
            place = dataflow.console(cloud.project, cloud.region, result.job_id())
            return DataflowJob(jobs.reference(options.runner, options.beam_args, result.job_id(), place))
        state = result.wait_until_finish()
    except Exception as error:
        raise remote_job.raised(error) or _refusal(error, options, runner, place) or error from error
    if state not in (None, "DONE"):
        raise MillraceError(f"the pipeline ended in the state {state}; see the log of the runner")
    return None


def _refusal(error: Exception, options: RunnerOptions, runner: PipelineRunner, place: str) -> MillraceError | None:
    """One line about a service that did not accept the job; None for other errors."""
    if isinstance(runner, DataflowRunner):
        job = jobs.reference(options.runner, options.beam_args, "", "")
        said = dataflow.explain(error)
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
