"""The line that shows how far a job is: which pass, how many records, what share of the job, how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from beam_jobs.core import progress
from beam_jobs.core.progress import Counters
from schemas import storage
from schemas.command import duration

# How long the passes take beside each other, as measured on rows and images; a job has some of them.
_WEIGHTS = {"analyzing": 5, "transforming": 3, "ingesting": 8, "predicting": 8, "writing": 2}
_ENOUGH = 0.02  # of a job, to say how long the rest will take


def done(now: Counters) -> float:
    """How much of the job's passes is done, from 0 to 1; an estimate, since a pass's length is known after it only."""
    if now.phase not in now.passes:
        return float(now.phase == "committing")
    place = now.passes.index(now.phase)
    weights = [_WEIGHTS[name] for name in now.passes]
    part, of = (now.written, now.shards) if now.shards else (max(now.done, now.consumed), now.total)
    return (sum(weights[:place]) + weights[place] * (min(1.0, part / of) if of else 0.0)) / sum(weights)


def render(now: Counters, *, seconds: float, rate: float, left: float | None = None) -> str:
    """One line for a person.

    Args:
      now: the counters.
      seconds: since the job began.
      rate: records per second; 0 if it is not known.
      left: seconds until the job's end; None if they are not known.
    """
    line = f"{now.phase}: {now.read:,} records"
    if now.phase == "writing" and now.shards:
        line = f"writing: {now.written} of {now.shards} shards"
    elif now.phase in ("starting", "committing"):
        line = now.phase
    elif rate:
        line += f", {rate:,.0f} records/s"
    if now.rejected:
        line += f", {now.rejected:,} rejected"
    if now.phase in now.passes:
        line = f"pass {now.passes.index(now.phase) + 1} of {len(now.passes)}, {line}; {100 * done(now):.0f} %"
    elif now.total and now.done:  # of a job whose passes this process does not know
        line += f", {min(100.0, 100 * now.done / now.total):.0f} %"
    if left is not None and left >= 1:
        line += f", about {duration(left)} left"
    return f"{line}  [{duration(seconds)}]"


class Clock:
    """Rate and remaining time, from counters that are looked at now and then."""

    def __init__(self, *, begun: float) -> None:
        self._begun = begun
        self._first: float | None = None  # when the first pass was seen to begin
        self._phase, self._since = "", begun

    def line(self, now: Counters, moment: float) -> str:
        """The line to show at a moment, in seconds of the same clock as `begun`."""
        if self._phase != now.phase:
            self._phase, self._since = now.phase, moment
        rate = now.read / (moment - self._since) if moment > self._since else 0.0
        left = None
        if now.phase in now.passes:
            if self._first is None:
                self._first = moment
            part = done(now)
            if part > _ENOUGH and moment > self._first:
                left = (moment - self._first) * (1 - part) / part
        return render(now, seconds=moment - self._begun, rate=rate, left=left)


class Display:
    """Shows the counters while its `with` block runs: in place on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, *, stream: TextIO | None = None, enabled: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._enabled = enabled
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._clock = Clock(begun=time.monotonic())

    def __enter__(self) -> Display:
        if self._enabled:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._enabled:
            self._thread.join()
        if self._tty and self._enabled:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _run(self) -> None:
        while not self._stop.wait(0.5 if self._tty else 10):
            line = self._clock.line(progress.shown(), time.monotonic())
            self._stream.write(f"\r\x1b[K{line}" if self._tty else f"{line}\n")
            self._stream.flush()


class Notes(list[str]):
    """What a job says while it runs: printed at once, and kept for its end."""

    def __call__(self, lines: Sequence[str]) -> None:
        storage.print_notes(lines)
        self.extend(storage.few(lines))

    def lines(self) -> list[str]:
        """The notes, as lines of the summary."""
        return [f"note       {note}" for note in self]
