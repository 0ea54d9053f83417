"""Jobs that run in other processes: waits for a job, cancels it, and finds the error that ended it."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from beam_jobs.core import progress
from schemas.errors import MillraceError

LONGEST = 400  # the most characters shown of an error of other code
_TRACEBACK = "Traceback (most recent call last):"
_STEP = re.compile(r" \[while running '(?P<step>[^']*)'\]")
_BUNDLE = re.compile(r"\bbundle inst\d+ \S+ failed:\s*")  # how Prism names a bundle, which says nothing to a user
_AT_END = re.compile(r" \[while running '.*'\]$", re.DOTALL)


def raised(error: BaseException) -> MillraceError | None:
    """Returns the MillraceError among the causes of a runner's error, without Beam's addition to its message.

    Returns None if a MillraceError is not among the causes.
    """
    exception: BaseException | None = error
    while exception is not None:
        if isinstance(exception, MillraceError):
            return type(exception)(_AT_END.sub("", str(exception)))
        exception = exception.__cause__ or exception.__context__
    return None


def reported(texts: Sequence[str]) -> MillraceError | None:
    """Finds a MillraceError in the error messages of a runner, which have it as the text of a traceback.

    Args:
      texts: the error messages.

    Returns:
      The last MillraceError in the messages, with the class and the message that it was raised with; None if the
      messages contain no MillraceError.
    """
    classes = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in _subclasses(MillraceError)}
    names = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True))
    report = re.compile(rf"^({names}): ((?:(?!^{re.escape(_TRACEBACK)})[\s\S])*?){_STEP.pattern}", re.MULTILINE)
    for text in reversed(texts):
        matches = report.findall(text)
        if matches:
            name, message, _ = matches[-1]
            return classes[name](message)
    return None


def cause(texts: Sequence[str]) -> str:
    """Describes an error of other code in a clause: the exception and the step of the last traceback.

    If the messages contain no traceback, no worker has reported an error: a worker was lost, or the runner itself
    failed. The clause says so, with the last message of the runner.
    """
    text = next((text for text in reversed(texts) if _TRACEBACK in text), None)
    if text is None:
        line = _one_line(_BUNDLE.sub("", texts[-1]) if texts else "")
        explanation = f"the runner says: {line}" if line else "the runner gave no reason"
        return f"and no worker reported an error: one may have been killed, such as for memory; {explanation}"
    lines = text.rpartition(_TRACEBACK)[2].splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip() and not line[0].isspace()), len(lines))
    message = "\n".join(lines[first:])
    step = _STEP.search(message)
    line = _one_line(_STEP.sub("", message))
    return line if step is None else f"in the step {step['step']!r}: {line}"


def _one_line(message: str) -> str:
    """Puts a message on one line and shortens it: messages of TensorFlow's graphs can be pages long."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _subclasses(cls: type[MillraceError]) -> Iterator[type[MillraceError]]:
    """Yields the class and all its direct and indirect subclasses."""
    yield cls
    for sub in cls.__subclasses__():
        yield from _subclasses(sub)


State = Literal["running", "done", "failed", "cancelled"]
# The states of a job that has ended, by the runners' names. In all other states, a job has not ended yet.
ENDED: Mapping[str, State] = {
    "DONE": "done",
    "FAILED": "failed",
    "STOPPED": "failed",
    "CANCELLED": "cancelled",
    "UPDATED": "failed",  # somebody has replaced the job by another job
    "DRAINED": "failed",  # a batch job that was drained has not read all of its input
}
CANCEL_SECONDS = 30.0  # the longest time that a cancelled job may take to end


class Unreachable(Exception):
    """The runner did not answer."""


class RemoteJob(Protocol):
    """A submitted job. All methods ask the runner, and raise Unreachable if it does not answer."""

    @property
    def id(self) -> str:
        """The runner's id of the job."""

    @property
    def place(self) -> str:
        """The address where a person finds the job: its page, or its job service."""

    @property
    def poll_seconds(self) -> float:
        """The seconds to wait between two requests to the runner."""

    @property
    def watches_workers(self) -> bool:
        """Whether the runner itself ends a job if the job's workers do not start."""

    def state(self) -> str:
        """Returns Beam's name of the job's state, such as RUNNING or DONE."""

    def counters(self) -> Mapping[str, int]:
        """Returns the sums of the counters of `beam_jobs.core.workers` that the runner knows by now."""

    def errors(self) -> Sequence[str]:
        """Returns the texts of all error messages of a job that has failed."""

    def cancel(self) -> None:
        """Asks the runner to cancel the job."""


def follow(
    job: RemoteJob, *, staging: str, total: int, start_seconds: float, answer_seconds: float = 60.0, quiet: bool = False
) -> str:
    """Waits until a job has ended, and shows its progress. Returns the runner's name of the state in which it ended.

    Args:
      job: the job.
      staging: the run's staging folder, where workers leave a sign that they have begun.
      total: the amount of input, in the unit of the progress.
      start_seconds: how long to wait for a worker to begin; 0: for ever.
      answer_seconds: how long to wait for an answer of the runner.
      quiet: do not print where the job is.

    Raises:
      MillraceError: the runner has not answered for `answer_seconds`, or no worker has begun for `start_seconds`.
    """
    if not quiet:
        progress.say(f"job {job.id}: {job.place}")
    from beam_jobs.core import workers  # here, because it imports Beam, and commands that only ask need no Beam

    answered = started = time.monotonic()
    has_begun = job.watches_workers or not start_seconds
    try:
        while True:
            counters: Mapping[str, int] = {}
            try:
                state = job.state()
                answered = time.monotonic()
                if state in ENDED:
                    return state
                counters = job.counters()
                progress.JOB.show(workers.as_progress(counters, total=total))
            except Unreachable as error:
                if time.monotonic() - answered > answer_seconds:
                    raise MillraceError(
                        f"{job.place}: no answer for {answer_seconds:.0f} s ({error}). The job {job.id} may still be "
                        "running there."
                    ) from error
            has_begun = has_begun or any(counters.values()) or workers.has_begun(staging)
            if not has_begun and time.monotonic() - started > start_seconds:
                raise MillraceError(
                    f"{job.place}: no worker of the job {job.id} has begun to read for {start_seconds:.0f} s. Is the "
                    "worker pool running, and is its Python on its PATH? See docs/engines.md. --start_timeout sets "
                    "how long to wait."
                )
            time.sleep(job.poll_seconds)
    finally:
        progress.JOB.show(None)


def failure(job: RemoteJob, state: str, *, verbose: bool = False) -> MillraceError:
    """Returns the error for a job that did not succeed: the MillraceError that a worker raised, or else one line.

    Args:
      job: the job.
      state: the runner's name of the state in which the job ended.
      verbose: print all error messages of the runner to standard error.
    """
    texts: Sequence[str] = ()
    with contextlib.suppress(Unreachable):
        texts = job.errors() if state == "FAILED" else ()
    if verbose:
        print(*texts, sep="\n", file=sys.stderr)
    own = reported(texts)
    if own is not None:
        return own
    if state != "FAILED":
        return MillraceError(f"{job.place}: the job {job.id} ended in the state {state}; nothing was committed")
    more = "" if verbose or not texts else "; --verbose shows all of its message"
    return MillraceError(f"{job.place}: the job {job.id} failed, {cause(texts)}{more}")


def end(job: RemoteJob, *, seconds: float = CANCEL_SECONDS, quiet: bool = False) -> State:
    """Cancels a job unless it has ended already, waits until it has ended, and returns the state in which it ended.

    Args:
      job: the job.
      seconds: how long a cancelled job may take to end.
      quiet: do not print that the job is cancelled.

    Raises:
      Unreachable: the runner does not answer.
      MillraceError: the job did not end in time.
    """
    if job.state() not in ENDED:
        if not quiet:
            progress.say(f"cancelling the job {job.id}")
        job.cancel()
    until = time.monotonic() + seconds
    while (state := job.state()) not in ENDED:
        if time.monotonic() > until:
            raise MillraceError(f"{job.place}: the job {job.id} has not ended {seconds:g} s after it was cancelled")
        time.sleep(job.poll_seconds)
    return ENDED[state]
