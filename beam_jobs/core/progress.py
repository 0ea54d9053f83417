"""Progress of the job in this process: counters that DoFns add to, and the line that shows them.

`Pipeline.run` blocks, and the local runner runs DoFns in this very process. Beam pickles DoFns, so nobody can hand them
a value that the display reads: they find it by import, as `JOB`. On another runner, the line shows the runner's metrics
(`beam_jobs.core.workers`).
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Hashable, Sequence
from typing import Self

from schemas import interrupts, storage
from schemas.command import duration
from schemas.display import Display


@dataclasses.dataclass
class Counters:
    """What the steps of a job have done."""

    phase: str = "starting"
    passes: tuple[str, ...] = ()  # the phases that go through all records, in order
    total: int = 0  # of one pass over the input
    read: int = 0  # records, in this phase
    done: int = 0  # of total, in this phase: in pieces that are complete
    consumed: int = 0  # the same, with about as much as was read of pieces that are not complete yet
    rejected: int = 0
    written: int = 0  # shards
    shards: int = 0


class JobProgress:
    """The progress of the job that this process launched or works for.

    Attributes:
      counters: what the DoFns of this process have done.
      launched_here: whether this process has launched a job; False in a worker's process.
    """

    def __init__(self) -> None:
        self.counters = Counters()
        self.launched_here = False
        self._workers: Counters | None = None  # by the runner's metrics, shown instead of the counters of this process
        self._attempts: dict[Hashable, Counters] = {}  # what the last attempt at each piece of the input has added
        self._begun: list[tuple[str, float]] = []  # the phases, and when each began
        self._lock = threading.Lock()

    def launch(self, *, total: int) -> None:
        """Begins a job, whose launcher is this process."""
        self.launched_here = True
        self._workers = None
        self.counters = Counters(total=total, passes=self.counters.passes)
        self._begun = [(self.counters.phase, time.monotonic())]
        self._attempts = {}

    def expect(self, *passes: str) -> None:
        """Says which phases of the pipeline that is being built go through all records, in their order."""
        self.counters.passes = passes

    def shown(self) -> Counters:
        """Returns what to show now: what the runner's metrics say, or the counters of this process."""
        return dataclasses.replace(self._workers or self.counters, passes=self.counters.passes)

    def show(self, workers: Counters | None) -> None:
        """Shows what workers in other processes have done; None: shows the counters of this process again."""
        interrupts.check()
        self._workers = workers

    def enter(self, phase: str) -> None:
        """Begins a phase if it is not the present one."""
        interrupts.check()
        with self._lock:
            if self.counters.phase != phase:
                self.counters.phase = phase
                self._begun.append((phase, time.monotonic()))
                self.counters.read = self.counters.done = self.counters.consumed = self.counters.rejected = 0
                self._attempts = {}

    def phases(self) -> list[tuple[str, float]]:
        """Returns the phases so far, and the seconds that each took; the last one up to now."""
        ends = [at for _, at in self._begun[1:]] + [time.monotonic()]
        return [(phase, end - at) for (phase, at), end in zip(self._begun, ends, strict=False)]

    def begin(self, piece: Hashable) -> None:
        """Begins a piece of the input. Takes back what an earlier attempt added to it: runners run a bundle again."""
        with self._lock:
            earlier = self._attempts.pop(piece, Counters())
            self.counters.read -= earlier.read
            self.counters.done -= earlier.done
            self.counters.consumed -= earlier.consumed
            self.counters.rejected -= earlier.rejected

    def add(self, piece: Hashable = None, **amounts: int) -> None:
        """Adds to the counters by name, and to those of a piece of the input, if one is named."""
        interrupts.check()
        with self._lock:
            own = () if piece is None else (self._attempts.setdefault(piece, Counters()),)
            for tally in (self.counters, *own):
                for name, amount in amounts.items():
                    setattr(tally, name, getattr(tally, name) + amount)


JOB = JobProgress()


def say(line: str) -> None:
    """Prints a line of its own on standard error, beside the display."""
    sys.stderr.write(f"\r\x1b[K{line}\n" if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


# How long the passes take beside each other, as measured on rows and images; a job has some of them.
_WEIGHTS = {"analyzing": 5, "transforming": 3, "ingesting": 8, "predicting": 8, "writing": 2}
_ENOUGH = 0.02  # of a job, to say how long the rest will take


def done(now: Counters) -> float:
    """Estimates how much of the job's passes is done, from 0 to 1: a pass's length is known after it only."""
    if now.phase not in now.passes:
        return float(now.phase == "committing")
    place = now.passes.index(now.phase)
    weights = [_WEIGHTS[name] for name in now.passes]
    part, of = (now.written, now.shards) if now.shards else (max(now.done, now.consumed), now.total)
    return (sum(weights[:place]) + weights[place] * (min(1.0, part / of) if of else 0.0)) / sum(weights)


def render(now: Counters, *, seconds: float, rate: float, left: float | None = None) -> str:
    """Returns the line for a person.

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
        """Returns the line to show at a moment, in seconds of the same clock as `begun`."""
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


class CountersDisplay(Display):
    """Shows the counters while its `with` block runs: in place on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._clock = Clock(begun=time.monotonic())

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if not self._quiet:
            self._thread.join()
        super().__exit__(*error)

    def _run(self) -> None:
        while not self._stop.wait(self.every):
            self.update(self._clock.line(JOB.shown(), time.monotonic()))


class JobNotes(list[str]):
    """What a job says while it runs: printed at once, and kept for its end."""

    def __call__(self, lines: Sequence[str]) -> None:
        storage.print_notes(lines)
        self.extend(storage.first_lines(lines))

    def lines(self) -> list[str]:
        """Returns the notes as lines of the summary."""
        return [f"note       {note}" for note in self]
