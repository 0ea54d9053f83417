"""Runs a pipeline on the Beam runner that the options name, in this process or on a cluster.

The runner of this process, LocalRunner, is Beam's in-process runner without transforms that only help on a cluster.
Every transform takes about 5 ms to build, pickle and run, even for a few rows, and many of the transforms that
tf.Transform applies only distribute work over workers. The runner leaves them out when Beam asks it to expand a
transform, so that the code that builds pipelines is the same for all runners.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners import DataflowRunner, PipelineRunner, create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_jobs.core.options import RunnerOptions
from beam_jobs.engines import dataflow, jobs, portable, remote_job
from beam_jobs.engines.checks import is_dataflow
from beam_jobs.engines.dataflow import DataflowJob
from beam_jobs.engines.portable import PortableJob
from beam_jobs.engines.remote_job import RemoteJob
from schemas import interrupts
from schemas.errors import MillraceError, UsageError
from schemas.source_distribution import archive_name, source_distribution

Build = Callable[[beam.Pipeline], beam.PCollection]  # adds the steps to a pipeline; returns the path of the result file


@contextlib.contextmanager
def started(options: RunnerOptions, build: Build, last: Callable[[], None]) -> Iterator[RemoteJob | None]:
    """Builds a pipeline and starts it. A local job runs to its end before the block begins.

    Workers that are started on this machine end with the block.

    Args:
      options: the job's options.
      build: adds the steps to a pipeline, and returns the path of the result file.
      last: the last step, which commits. In a local job, it is called here; otherwise it becomes the last transform of
        the pipeline, and runs on a worker.

    Yields:
      The job in other processes; None if the job has ended already, or if a Flex Template starts it after this process
      has ended.

    Raises:
      UsageError: Beam does not accept the options.
      MillraceError: a service does not answer or did not accept the job, or a step failed.
    """

    def build_all(pipeline: beam.Pipeline) -> None:
        _ = build(pipeline) | "Commit" >> beam.Map(_take, last)

    with (
        _prepared(options) as (beam_options, runner),
        portable.with_workers(beam_options, runner, verbose=options.verbose),
    ):
        if options.is_local:
            _submit(options, beam_options, runner, build)
            last()
            yield None
        else:
            yield _submit(options, beam_options, runner, build_all)


def _take(_: str, last: Callable[[], None]) -> None:
    """Calls the last step. The first argument, the path of the result file, makes Beam wait for the file."""
    last()


def _submit(
    options: RunnerOptions,
    beam_options: PipelineOptions,
    runner: PipelineRunner,
    build: Callable[[beam.Pipeline], object],
) -> RemoteJob | None:
    """Builds the pipeline and submits it. Returns the job in other processes; None if the pipeline has ended."""
    noted: list[PortableJob] = []
    place = portable.endpoint(beam_options) or f"{options.runner} on this machine"
    if isinstance(runner, PortableRunner):

        def note(service: object, job_id: str) -> None:
            if isinstance(service, beam_job_api_pb2_grpc.JobServiceStub):  # else Beam itself asks the cluster
                noted.append(PortableJob(service, job_id, place))

        runner = portable.observed(runner, note)
    if isinstance(runner, DataflowRunner):
        job = jobs.reference(options)
        dataflow.check_credentials(job)
        place = job.place
    pipeline = beam.Pipeline(runner=runner, options=beam_options)
    build(pipeline)
    interrupts.check()
    try:
        with _quiet_about_empty_columns():
            result = pipeline.run()
        if noted:
            return noted[0]
        if isinstance(runner, DataflowRunner):
            if not result.has_job:  # the pipeline was written to --template_location; see beam_jobs.flex_template
                return None
            cloud = beam_options.view_as(GoogleCloudOptions)
            place = dataflow.console(cloud.project, cloud.region, result.job_id())
            return DataflowJob(jobs.reference(options, result.job_id(), place))
        state = result.wait_until_finish()
    except BaseException as error:
        with contextlib.suppress(Exception):  # cancels the job: it is not in the lease, so nobody could find it later
            for submitted in noted:
                submitted.cancel()
        if not isinstance(error, Exception):
            raise
        raise remote_job.raised(error) or _refusal(error, runner, place) or error from error
    if state not in (None, "DONE"):
        raise MillraceError(f"the pipeline ended in the state {state}; see the log of the runner")
    return None


@contextlib.contextmanager
def _quiet_about_empty_columns() -> Iterator[None]:
    """Hides a warning of tf.Transform: it divides 0 by 0 for a column without values. The graph handles the NaN."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning, r"tensorflow_transform\.analyzers")
        yield


def _refusal(error: Exception, runner: PipelineRunner, place: str) -> MillraceError | None:
    """Makes an error of one line if a service did not accept the job. Returns None for other errors."""
    if isinstance(runner, DataflowRunner):
        detail = dataflow.explain(error)
        return None if detail is None else MillraceError(f"{place}: the job was not accepted: {detail}")
    if not isinstance(error, grpc.RpcError):
        return None
    details = " ".join(str(error.details() if isinstance(error, grpc.Call) else error).split())
    # The service has answered before, so if it is unavailable now, it has ended.
    if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.UNAVAILABLE:
        return MillraceError(
            f"{place}: the job service went away while the job was being submitted ({details}). See its log; nothing "
            "was committed."
        )
    return MillraceError(f"{place}: the job was not accepted: {details}")


Options = TypeVar("Options", bound=PipelineOptions)


class LocalOptions(PipelineOptions):
    """Beam's options, with a cache of their views.

    Beam calls `view_as` some 500 times while it builds and runs one pipeline, and each call makes an argument parser,
    which adds up to a fifth of the time of a small job. All views of a class share their values, so one is enough.
    """

    def view_as(self, cls: type[Options]) -> Options:
        views: dict[type[PipelineOptions], Any] = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the cached views, because a copy has its own values, and needs its own views."""
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}


# The labels of transforms of tf.Transform and tfx-bsl that only count how these libraries are used. Nobody reads such
# counters in a local job, and these are 10 of the 88 functions that Beam inspects, pickles and sets up for a small job.
TELEMETRY = ("TrackRecordBatchBytes", "TrackTensorRepresentations", "IncrementCounter", "_InstrumentAPI")


class LocalRunner(FnApiRunner):
    """Runs pipelines in this process. Leaves out or shortens some transforms, with the same elements as the result."""

    def apply(self, transform: beam.PTransform, pvalue: Any, options: PipelineOptions) -> Any:
        """Applies a transform to `pvalue`, or a shorter one. Beam calls this for every transform, nested ones too."""
        if transform.default_label().startswith(TELEMETRY):
            return pvalue
        if isinstance(transform, beam.Reshuffle) and options.view_as(DirectOptions).direct_num_workers == 1:
            return pvalue
        if isinstance(transform, beam.Create):
            values = beam.ParDo(EmitValues(transform.values)).with_output_types(transform.get_output_type())
            return pvalue | beam.Impulse() | values
        if isinstance(transform, beam.CombineGlobally) and transform.fanout:
            transform = transform.with_fanout(None)
        return super().apply(transform, pvalue, options)


class EmitValues(beam.DoFn):
    """Yields the given values for its element. Replaces `Create`, which needs more transforms to decode the values."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values

    def process(self, _: bytes) -> Iterable[Any]:
        return self.values


def pipeline_options(options: RunnerOptions) -> PipelineOptions:
    """Parses the arguments that are not options of this job as Beam's options.

    Raises:
      UsageError: Beam does not know an argument.
    """
    unknown: list[str] = []

    def look(parser: argparse.ArgumentParser) -> None:
        unknown.extend(parser.parse_known_args(list(options.beam_args))[1])

    try:
        PipelineOptions([]).get_all_options(add_extra_args_fn=look)  # the function is given Beam's own parser
    except SystemExit as error:
        raise UsageError(f"{' '.join(options.beam_args)}: not understood by Apache Beam") from error
    if unknown:
        flag = unknown[0].split("=")[0]  # the message leaves the value out, which may be a secret
        raise UsageError(f"{flag}: not an option of this command (see --help) or of Apache Beam")
    if options.is_local:
        return LocalOptions(list(options.beam_args))
    return PipelineOptions(list(options.beam_args))


@contextlib.contextmanager
def _prepared(options: RunnerOptions) -> Iterator[tuple[PipelineOptions, PipelineRunner]]:
    """Makes Beam's options and the runner, and yields both.

    For Dataflow, also makes a package of this code, which Beam sends to the workers. The package is deleted at the end
    of the block. No package is made if `--sdk_container_image` names an image, which must contain this code, or for
    other runners.

    Raises:
      UsageError: Beam does not accept these options for this runner.
    """
    if not options.verbose:
        quiet_beam(options.runner)
    beam_options, runner = pipeline_options(options), make_runner(options)
    problems = PipelineOptionsValidator(beam_options, runner).validate()
    if problems:
        raise UsageError(f"{options.runner}: {' '.join('; '.join(problems).split())}")
    if not is_dataflow(options.runner) or beam_options.view_as(WorkerOptions).sdk_container_image is not None:
        yield beam_options, runner
        return
    setup = beam_options.view_as(SetupOptions)
    with tempfile.TemporaryDirectory(prefix="millrace-package-") as folder:
        path = os.path.join(folder, archive_name())
        with open(path, "wb") as file:
            file.write(source_distribution())
        setup.extra_packages = [*(setup.extra_packages or ()), path]
        yield beam_options, runner


def make_runner(options: RunnerOptions) -> PipelineRunner:
    """Makes the runner that the options name: LocalRunner for a local job, otherwise Beam's runner of this name.

    `DirectRunner` names LocalRunner here. Beam itself, since 2.68, runs Prism for this name, and Prism downloads a
    program when it first runs.
    """
    return LocalRunner() if options.is_local else create_runner(options.runner)


def quiet_beam(runner: str) -> None:
    """Silences Beam's own reports of errors: pages of stack frames that would hide this command's own message.

    `runner`: the name of the runner. For Dataflow, the loggers of the runners stay, since they warn about the project
    and the job.
    """
    silent = ["apache_beam.runners.dataflow.internal.apiclient", "apache_beam.utils.retry"]
    if not is_dataflow(runner):
        silent += ["apache_beam.runners", "apache_beam.utils.subprocess_server"]
        servers = logging.getLogger("PrismJobServer")  # passes on the log of Prism, and sets its own level
        servers.propagate = False
        servers.addHandler(logging.NullHandler())
    for name in silent:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # Beam logs errors as CRITICAL before it raises them
