"""Following a job of Vertex AI: its state, its trials and its log, until it has ended or Ctrl-C was pressed."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

from millrace.submit.vertex_job import ENDED, Unreachable, VertexJobs, state_of
from millrace.submit.vertex_log import VertexLog
from millrace.submit.vertex_trials import read_trials
from schemas import command
from schemas.errors import MillraceError

POLL_SECONDS = 2.0
LAST_LOOKS = 10  # at the log of a job that has ended, as long as there are new lines


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A job that was submitted, and those who ask about it.

    Attributes:
      name: its resource name.
      url: its page.
      jobs: the service.
      log: its log.
      metric: what trials are compared by; None for a job without trials.
    """

    name: str
    url: str
    jobs: VertexJobs
    log: VertexLog
    metric: str | None = None


def follow(submitted: Submitted, *, quiet: bool) -> Any:
    """Prints each new state, trial and line until the job has ended. Returns it as it is then: its message.

    Raises:
      MillraceError: Vertex AI does not answer any more; the job goes on.
    """
    told = ""
    shown = _Shown(submitted)
    job: Any = None
    while told not in ENDED:
        if told:
            time.sleep(POLL_SECONDS)
        try:
            job = submitted.jobs.get(submitted.name)
        except Unreachable as why:
            raise MillraceError(f"{why}; the job goes on: {submitted.url}") from why
        if state_of(job) != told and not quiet:
            _say(f"state      {state_of(job)}")
        told = state_of(job)
        if not quiet:
            shown.new_trials(job)
            shown.new_lines()
    for _ in range(LAST_LOOKS):  # lines come some seconds late
        if quiet or not shown.new_lines():
            break
        time.sleep(POLL_SECONDS)
    return job


class _Shown:
    """The job's trials and its log on standard error."""

    def __init__(self, submitted: Submitted) -> None:
        self._submitted = submitted
        self._readable = True
        self._trials: dict[str, str] = {}  # the last line about each

    def new_trials(self, job: Any) -> None:
        """Prints the trials whose state or value is new."""
        if self._submitted.metric is None:
            return
        for trial in read_trials(job, self._submitted.metric):
            line = trial.told(self._submitted.metric)
            if self._trials.get(trial.id) != line:
                self._trials[trial.id] = line
                _say(f"trial    {line}")

    def new_lines(self) -> bool:
        """Prints what has come since the last call. Returns whether there was any."""
        found = False
        try:
            for line in self._submitted.log.new_lines() if self._readable else ():
                found = True
                _say(f"[{line.replica}] {line.text}")
        except MillraceError as why:
            self._readable = False
            _say(f"{why}; the job's page has it: {self._submitted.url}")
        return found


def interrupted(what: command.OnInterrupt, submitted: Submitted) -> command.Interrupted:
    """After Ctrl-C: cancels the job or leaves it, as the options or the user say, and returns what to raise."""
    if command.cancel_or_leave(what, submitted.name) == "leave":
        return command.Interrupted(f"interrupted; {submitted.name} goes on: {submitted.url}")
    try:
        submitted.jobs.cancel(submitted.name)
    except MillraceError as error:
        return command.Interrupted(f"interrupted; the job was not cancelled: {error}")
    return command.Interrupted(f"interrupted; {submitted.name} is being cancelled")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
