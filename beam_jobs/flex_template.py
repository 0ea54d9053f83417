"""`python -m beam_jobs.flex_template`: the command that the launcher of a Dataflow Flex Template runs.

The launcher passes the parameters of the template as options. Its option `--template_location` says where Beam writes
the job. Dataflow begins the job when this process has ended with exit code 0, and the job commits the dataset by
itself. The job is found by its `--job_name`, so each job needs a name of its own.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from beam_jobs.core.options import JobOptions, parse
from schemas import command
from schemas.errors import UsageError

PROG = "python -m beam_jobs.flex_template"
RUNNER = ("--runner", "DataflowRunner")


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Writes the job for Dataflow to start, and the run in the output folder. Returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    from beam_jobs.runs.job import submit_job

    options = template_options(argv, prog=prog)
    holder = submit_job(options)
    later = f"it commits by itself; `millrace job status --output {options.output}` tells how it is doing"
    return command.Report(f"wrote {holder.job} as run {holder.run}; {later}", {})


def template_options(argv: Sequence[str], *, prog: str = PROG) -> JobOptions:
    """Parses the options of a job that a template starts.

    A template's parameter is one string, so `--input=A B` names several patterns, separated by spaces.

    Raises:
      UsageError: an option is wrong, or the launcher did not give --template_location or --job_name.
    """
    from beam_jobs.engines.checks import read_flags

    inputs = [arg.partition("=")[2] for arg in argv if arg.startswith("--input=")]
    other_args = [arg for arg in argv if not arg.startswith("--input=")]
    patterns = [pattern for value in inputs for pattern in value.split()]
    own = ["--input", *patterns] if patterns else []  # in the form of the command line: one argument for each pattern
    options = parse([*other_args, *own, *RUNNER], prog=prog)
    flags = read_flags(options.beam_args)
    for name, value in (("template_location", flags.template_location), ("job_name", flags.job_name)):
        if value is None:
            raise UsageError(f"--{name}: missing; the launcher of a Flex Template gives it (docs/dataflow.md)")
    return dataclasses.replace(options, no_wait=True, flex_template=True)


if __name__ == "__main__":
    sys.exit(main())
