"""Which of Beam's runners does the work."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.core.options import JobOptions
from schemas.errors import MillraceError, UsageError


def pipeline_options(options: JobOptions) -> PipelineOptions:
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
    return PipelineOptions(list(options.beam_args))


def make_runner(options: JobOptions) -> object:
    """The runner: Beam's in-process one by its own class, the others by name.

    `DirectRunner` is the in-process runner here. Beam itself takes that name to mean Prism since 2.68, which downloads
    a program when it first runs.
    """
    if options.is_local:
        from beam_jobs.runtime.local_runner import LocalRunner

        return LocalRunner()
    return options.runner


def run(options: JobOptions, build: Callable[[beam.Pipeline], None]) -> None:
    """Builds the pipeline and runs it to its end.

    Raises:
      MillraceError: a step of ours raised it, in this process or on a worker.
    """
    if options.is_local and not options.verbose:
        # What fails is raised here; Beam's own report of it, a page of frames, would only hide the message.
        logging.getLogger("apache_beam.runners").setLevel(logging.CRITICAL)
    pipeline = beam.Pipeline(runner=make_runner(options), options=pipeline_options(options))
    build(pipeline)
    try:
        result = pipeline.run()
        state = result.wait_until_finish()
    except Exception as error:
        raise own_error(error) or error from error
    if state not in (None, "DONE"):
        raise MillraceError(f"the pipeline ended in the state {state}; see the log of the runner")


_WHERE = re.compile(r" \[while running '.*'\]$", re.DOTALL)  # what Beam appends to a message


def own_error(error: BaseException) -> MillraceError | None:
    """The error of ours that a runner has wrapped in its own."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MillraceError):
            return type(seen)(_WHERE.sub("", str(seen)))
        seen = seen.__cause__ or seen.__context__
    return None
