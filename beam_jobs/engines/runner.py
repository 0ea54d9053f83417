"""Runs a pipeline on the Beam runner that the options name.

Beam's in-process runner goes without the transforms that only help on a cluster. Every transform takes about 5 ms to
build, pickle and run, and so does every stage, however few rows there are, and many of the transforms that
tf.Transform applies only distribute work over workers. They are left out where the runner expands composite
transforms, so no other code depends on it.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners import PipelineRunner, create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_jobs.core.options import RunnerOptions
from beam_jobs.engines import remote_job, submission
from beam_jobs.engines.checks import is_dataflow
from schemas.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.engines.remote_job import RemoteJob


Options = TypeVar("Options", bound=PipelineOptions)


class LocalOptions(PipelineOptions):
    """Beam's options, of which each view is made once.

    Beam asks for a view some 500 times while it builds and runs one pipeline, and makes an argument parser for each,
    which is a fifth of what a small job takes. Views share their values, so that one is as good as another.
    """

    def view_as(self, cls: type[Options]) -> Options:
        views: dict[type[PipelineOptions], Any] = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Without the views: a copy has values of its own."""
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}


class LocalRunner(FnApiRunner):
    """Runs pipelines in this process, and expands some transforms in a shorter way that gives the same elements."""

    def apply(self, transform: beam.PTransform, given: Any, options: PipelineOptions) -> Any:
        """Applies a transform to `given`. Beam calls this for every transform, including nested ones."""
        if isinstance(transform, beam.Reshuffle) and options.view_as(DirectOptions).direct_num_workers == 1:
            return given
        if isinstance(transform, beam.Create):
            values = beam.ParDo(Values(transform.values)).with_output_types(transform.get_output_type())
            return given | beam.Impulse() | values
        if isinstance(transform, beam.CombineGlobally) and transform.fanout:
            transform = transform.with_fanout(None)
        return super().apply(transform, given, options)


class Values(beam.DoFn):
    """Any element -> the values. They are pickled; `Create` encodes them and decodes them in another transform."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values

    def process(self, _: bytes) -> Iterable[Any]:
        return self.values


def pipeline_options(options: RunnerOptions) -> PipelineOptions:
    """Beam's own options, from the arguments that are not this job's.

    Raises:
      UsageError: an argument is neither this job's nor Beam's.
    """
    unknown: list[str] = []

    def look(known: argparse.ArgumentParser) -> None:
        unknown.extend(known.parse_known_args(list(options.beam_args))[1])

    try:
        PipelineOptions([]).get_all_options(add_extra_args_fn=look)  # the function is given Beam's own parser
    except SystemExit as error:
        raise UsageError(f"{' '.join(options.beam_args)}: not understood by Apache Beam") from error
    if unknown:
        flag = unknown[0].split("=")[0]  # not its value, which may be a secret
        raise UsageError(f"{flag}: not an option of this command (see --help) or of Apache Beam")
    if options.is_local:
        return LocalOptions(list(options.beam_args))
    return PipelineOptions(list(options.beam_args))


def run(options: RunnerOptions, build: Callable[[beam.Pipeline], None], *, staging: str, total: int) -> None:
    """Builds the pipeline, runs it and waits for it.

    Args:
      options: the job's.
      build: adds the steps to a pipeline.
      staging: the run's staging folder, where workers leave a sign that they have begun.
      total: how much there is to read, for the progress.

    Raises:
      MillraceError: a step raised it, in this process or on a worker, or the runner did not finish the pipeline.
    """
    if not options.verbose:
        quiet_beam(options)
    if options.is_local:
        _run_here(options, build)
        return
    from beam_jobs.engines import portable

    given, runner = _prepared(options)
    with portable.with_workers(given, runner, verbose=options.verbose):
        job = _submit(options, given, runner, build)
        if job is not None:
            follow(options, job, staging=staging, total=total)


def start(options: RunnerOptions, build: Callable[[beam.Pipeline], None]) -> RemoteJob | None:
    """Builds the pipeline and submits it to a runner that works in other processes.

    Returns:
      The job; None if the service begins it when this process has ended, from a Flex Template.

    Raises:
      UsageError: Beam does not accept the options.
      MillraceError: the runner did not start, or did not accept the pipeline.
    """
    if not options.verbose:
        quiet_beam(options)
    return _submit(options, *_prepared(options), build)


def follow(options: RunnerOptions, job: RemoteJob, *, staging: str, total: int, cancel: bool = True) -> None:
    """Waits until a job is done, and shows its progress. See `run` for the arguments and errors.

    `cancel`: cancels the job if this is left by an exception.
    """
    from beam_jobs.core import workers
    from beam_jobs.engines import remote_job

    remote_job.follow(
        job,
        begun=lambda: workers.has_begun(staging),
        total=total,
        patience=remote_job.Patience(start=options.start_timeout),
        quiet=options.quiet,
        verbose=options.verbose,
        cancel=cancel,
    )


def _submit(
    options: RunnerOptions, given: PipelineOptions, runner: PipelineRunner, build: Callable[[beam.Pipeline], None]
) -> RemoteJob | None:

    with submission.staged(options.runner, given):
        return submission.submit(options, given, runner, build)


def _prepared(options: RunnerOptions) -> tuple[PipelineOptions, PipelineRunner]:
    """Beam's options and the runner.

    Raises:
      UsageError: Beam does not accept these options for this runner.
    """
    given, runner = pipeline_options(options), make_runner(options)
    problems = PipelineOptionsValidator(given, runner).validate()
    if problems:
        raise UsageError(f"{options.runner}: {' '.join('; '.join(problems).split())}")
    return given, runner


def make_runner(options: RunnerOptions) -> PipelineRunner:
    """The runner: Beam's in-process one by its own class, the others by name.

    `DirectRunner` is the in-process runner here. Since 2.68, Beam itself takes that name to mean Prism, which downloads
    a program when it first runs.
    """
    if options.is_local:
        return LocalRunner()
    runner = create_runner(options.runner)
    if isinstance(runner, PortableRunner):
        from beam_jobs.engines import portable

        return portable.explained(runner)
    return runner


def _run_here(options: RunnerOptions, build: Callable[[beam.Pipeline], None]) -> None:
    given, runner = _prepared(options)
    pipeline = beam.Pipeline(runner=runner, options=given)
    build(pipeline)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise remote_job.raised(error) or error from error


def quiet_beam(options: RunnerOptions) -> None:
    """Silences Beam's own reports of errors, pages of stack frames that would hide the message of this command."""
    silent = ["apache_beam.runners.dataflow.internal.apiclient", "apache_beam.utils.retry"]
    if not is_dataflow(options.runner):  # whose warnings are about the project and the job
        silent += ["apache_beam.runners", "apache_beam.utils.subprocess_server"]
        servers = logging.getLogger("PrismJobServer")  # passes on the log of Prism, and sets its own level
        servers.propagate = False
        servers.addHandler(logging.NullHandler())
    for name in silent:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # Beam also logs as CRITICAL what it then raises
