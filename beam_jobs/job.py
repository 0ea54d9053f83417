"""`python -m beam_jobs.job`: tells the status of a job that was submitted to a cluster, or cancels the job."""

from __future__ import annotations

import dataclasses
import sys
from typing import ClassVar

from schemas import command
from schemas.options import Options, json_flag, option

PROG = "python -m beam_jobs.job"

_EPILOG = """\
examples:
  %(prog)s status --output gs://bucket/out
  %(prog)s cancel --output gs://bucket/out

A job on a cluster commits by itself, so nobody has to wait for it. Credentials are taken from the environment. Exit
codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmittedOptions(Options):
    """Which job is asked about."""

    output: str = option("the folder that the job writes", metavar="DIR")
    json: ClassVar[bool] = json_flag()


def _status(options: SubmittedOptions, prog: str) -> command.Report:
    from beam_jobs.runs.submitted import status

    run_status = status(options.output)
    job = None if run_status.job is None else run_status.job.model_dump()
    lines = [f"job        {run_status.job}"] if run_status.job else []
    lines += [f"run        {run_status.run}", f"state      {run_status.state}", f"next       {run_status.next}"]
    data = {
        "path": options.output,
        "run": run_status.run,
        "job": job,
        "state": run_status.state,
        "next": run_status.next,
    }
    return command.Report("\n".join(lines), data, only_printed=True)


def _cancel(options: SubmittedOptions, prog: str) -> command.Report:
    from beam_jobs.runs.submitted import cancel

    run, message = cancel(options.output)
    return command.Report(message, {"path": options.output, "run": run, "message": message})


COMMANDS = command.Commands(
    prog=PROG,
    description="Asks about a job that was submitted to a cluster, or cancels it.",
    epilog=_EPILOG,
    commands=(
        command.Command(
            prog="status",
            options=SubmittedOptions,
            work=_status,
            description="Asks the runner how the job is doing.\n\nChanges nothing.",
        ),
        command.Command(
            prog="cancel",
            options=SubmittedOptions,
            work=_cancel,
            description="Cancels the job and removes its files.\n\n"
            "Waits until it has ended, and keeps its rejects. If the "
            "runner does not answer, nothing changes.",
        ),
    ),
)
app, main = COMMANDS.app, COMMANDS.main

if __name__ == "__main__":
    sys.exit(main())
