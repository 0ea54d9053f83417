"""`python -m beam_jobs.job`: takes up a job that was submitted to a cluster."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas import command
from schemas.dataset.show import describe

if TYPE_CHECKING:
    from beam_jobs.runtime.take_up import Status, Told
    from schemas.dataset.submitted import Submitted

PROG = "python -m beam_jobs.job"
SAY_SECONDS = 10.0  # between two lines about the same state

_EPILOG = """\
examples:
  %(prog)s status --output gs://bucket/out
  %(prog)s wait --output gs://bucket/out
  %(prog)s cancel --output gs://bucket/out --force

Several processes may take up one job, and any of them may be killed; one commits. Credentials are taken from the
environment. Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. The job goes on if wait is interrupted.
"""

_COMMANDS = (
    ("status", "ask how the job is doing", "Asks the runner how the job is doing. Changes nothing."),
    (
        "wait",
        "wait until the job has ended, then commit it",
        "Waits until the job has ended, then does what commit does.",
    ),
    (
        "commit",
        "commit a job that is done",
        "Checks the counts of a job that is done, and commits its dataset. If it has failed, or was cancelled, keeps "
        "its rejects and removes its other files. Does nothing if it is committed.",
    ),
    (
        "cancel",
        "cancel the job and remove its files",
        "Cancels the job, waits until it has ended, keeps its rejects and removes its other files. If the runner does "
        "not answer, nothing changes.",
    ),
)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(
        prog=prog,
        description="Takes up a job that was submitted to a cluster with --no_wait, or whose launcher was killed.",
        epilog=_EPILOG,
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text, description in _COMMANDS:
        sub = commands.add_parser(name, help=help_text, description=description)
        sub.add_argument("--output", required=True, metavar="DIR", help="the dataset directory that the job writes")
        sub.add_argument("--run", metavar="RUN", help="the job's run, where several jobs may still be committed")
        sub.add_argument("--json", action="store_true", help=command.JSON_HELP)
        if name == "cancel":
            sub.add_argument(
                "--force",
                action="store_true",
                help="end the job's lease and remove its files even if the runner does not answer, or the job is done",
            )
        elif name == "wait":
            sub.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
    return p


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Runs the command and returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options = parser(prog).parse_args(argv)
    from beam_jobs.runtime import take_up

    output = options.output
    submitted = take_up.find(output, options.run)
    match options.command:
        case "status":
            return _status(output, take_up.status(output, submitted))
        case "cancel":
            told = take_up.cancel(output, submitted, force=options.force)
            return command.Report(told, {"path": output, "run": submitted.run, "message": told})
        case "wait":
            shown = command.Interrupted(f"interrupted; {submitted.job} goes on")
            try:
                manifest = take_up.wait(output, submitted, told=_progress(submitted, quiet=options.quiet))
            except KeyboardInterrupt:
                raise shown from None
        case _:
            manifest = take_up.commit(output, submitted)
    from beam_jobs.preprocess import summarize

    return command.Report(summarize(output, manifest), describe(output) if options.json else {})


def _status(output: str, found: Status) -> command.Report:
    submitted = found.submitted
    state = "committed" if found.committed else found.state
    lines = [
        f"job        {submitted.job}",
        f"run        {submitted.run}",
        f"state      {state}" + (", but another job has committed" if found.superseded else ""),
        f"next       {found.next}",
    ]
    data: dict[str, Any] = {
        "path": output,
        "run": submitted.run,
        "job": submitted.job.model_dump(),
        "state": state,
        "superseded": found.superseded,
    }
    return command.Report("\n".join(lines), data)


def _progress(submitted: Submitted, *, quiet: bool) -> Told:
    """Tells each new state of the job on standard error, and every ten seconds what its workers have counted."""
    seen, said_at = "", 0.0

    def told(state: str, counters: Mapping[str, int]) -> None:
        nonlocal seen, said_at
        now = time.monotonic()
        if quiet or (state == seen and now - said_at < SAY_SECONDS):
            return
        seen, said_at = state, now
        line = f"{submitted.job}: {state}"
        if state == "running" and counters:
            from beam_jobs.core import display, worker_metrics

            counted = worker_metrics.as_progress(counters, total=0)
            line += f", {display.render(counted, seconds=time.time() - submitted.submitted, rate=0)}"
        print(line, file=sys.stderr, flush=True)

    return told


if __name__ == "__main__":
    sys.exit(main())
