"""`python -m beam_jobs.job`: takes up a job that was submitted to a cluster."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from schemas import command
from schemas.dataset.show import describe
from schemas.options import QUIET_HELP, Options, json_flag, option

if TYPE_CHECKING:
    from beam_jobs.runs.reattach import Status, Told
    from schemas.dataset.holders import Submitted
    from schemas.dataset.manifest import Manifest

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmittedOptions(Options):
    """Which job is asked about."""

    output: str = option("the dataset directory that the job writes", metavar="DIR")
    run: str | None = option("the job's run, where several jobs may still be committed", None, metavar="RUN")
    json: ClassVar[bool] = json_flag()

    def find(self) -> Submitted:
        """The job."""
        from beam_jobs.runs import reattach

        return reattach.find(self.output, self.run)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CancelOptions(SubmittedOptions):
    """The same, to cancel it."""

    force: bool = option(
        "end the job's lease and remove its files even if the runner does not answer, or the job is done", False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaitOptions(SubmittedOptions):
    """The same, to wait for it."""

    quiet: bool = option(QUIET_HELP, False)


def _ask(options: SubmittedOptions, prog: str) -> command.Report:
    from beam_jobs.runs import reattach

    return _status(options.output, reattach.status(options.output, options.find()))


def _cancel(options: CancelOptions, prog: str) -> command.Report:
    from beam_jobs.runs import reattach

    submitted = options.find()
    told = reattach.cancel(options.output, submitted, force=options.force)
    return command.Report(told, {"path": options.output, "run": submitted.run, "message": told})


def _wait(options: WaitOptions, prog: str) -> command.Report:
    from beam_jobs.runs import reattach

    submitted = options.find()
    with command.when_interrupted(f"{submitted.job} goes on"):
        manifest = reattach.wait(options.output, submitted, told=_progress(submitted, quiet=options.quiet))
    return _committed(options.output, manifest)


def _commit(options: SubmittedOptions, prog: str) -> command.Report:
    from beam_jobs.runs import reattach

    return _committed(options.output, reattach.commit(options.output, options.find()))


def _committed(output: str, manifest: Manifest) -> command.Report:
    from beam_jobs.preprocess import summarize

    return command.Report(summarize(output, manifest), describe(output))


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
    return command.Report("\n".join(lines), data, only_printed=True)


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
            from beam_jobs.core import progress, workers

            counted = workers.as_progress(counters, total=0)
            line += f", {progress.render(counted, seconds=time.time() - submitted.submitted, rate=0)}"
        print(line, file=sys.stderr, flush=True)

    return told


COMMANDS = command.Commands(
    prog=PROG,
    description="Takes up a job that was submitted to a cluster with --no_wait, or whose launcher was killed.",
    epilog=_EPILOG,
    commands=(
        command.Command(
            prog="status",
            options=SubmittedOptions,
            work=_ask,
            description="Asks the runner how the job is doing.\n\nChanges nothing.",
        ),
        command.Command(
            prog="wait",
            options=WaitOptions,
            work=_wait,
            description="Waits until the job has ended, then does what commit does.",
        ),
        command.Command(
            prog="commit",
            options=SubmittedOptions,
            work=_commit,
            description="Commits a job that is done.\n\n"
            "Checks its counts first. If it has failed, or was cancelled, keeps "
            "its rejects and removes its other files. Does nothing if it is committed.",
        ),
        command.Command(
            prog="cancel",
            options=CancelOptions,
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
