"""Progress of the job in this process: counters that DoFns add to, and a side thread that shows them.

`Pipeline.run` blocks, and the local runner runs DoFns in this very process, so a module-level registry, which DoFns
reach by import, is the plainest way to see them work. On another runner, what is shown comes from the runner's metrics
(`beam_jobs.core.worker_metrics`).
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Hashable
from types import TracebackType
from typing import TextIO

from schemas import interrupts


@dataclasses.dataclass
class Counters:
    """What the DoFns of this process have done since `reset`."""

    phase: str = "starting"
    total: int = 0  # of one pass over the input
    read: int = 0  # records, in this phase
    done: int = 0  # of total, in this phase
    rejected: int = 0
    merged: int = 0  # shards
    shards: int = 0


counters = Counters()
_of_workers: list[Counters] = []  # what a runner's metrics say, which is shown instead of the counters of this process
_launched = threading.Event()
_attempts: dict[Hashable, Counters] = {}  # what the last attempt at each piece of the input added, in this phase
_lock = threading.Lock()


def reset(*, total: int) -> None:
    """Begins a job, whose launcher is this process."""
    _launched.set()
    _of_workers.clear()
    vars(counters).update(vars(Counters(total=total)))
    _attempts.clear()


def launched_here() -> bool:
    """Whether this process has launched a job; False in a worker's process."""
    return _launched.is_set()


def show(of_workers: Counters | None) -> None:
    """Shows what workers in other processes have done; None: shows the counters of this process again."""
    interrupts.check()
    _of_workers[:] = () if of_workers is None else (of_workers,)


def say(line: str) -> None:
    """Prints a line of its own on standard error, beside the display."""
    sys.stderr.write(f"\r\x1b[K{line}\n" if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


def enter(phase: str) -> None:
    """Begins a phase if it is not the present one."""
    interrupts.check()
    with _lock:
        if counters.phase != phase:
            counters.phase = phase
            counters.read = counters.done = counters.rejected = 0
            _attempts.clear()


def begin(piece: Hashable) -> None:
    """Begins a piece of the input. What an earlier attempt at it added is taken back: runners run a bundle again."""
    with _lock:
        earlier = _attempts.pop(piece, Counters())
        counters.read -= earlier.read
        counters.done -= earlier.done
        counters.rejected -= earlier.rejected


def add(piece: Hashable = None, **amounts: int) -> None:
    """Adds to the counters by name; of the input, what is of one piece."""
    interrupts.check()
    with _lock:
        for tally in (counters,) if piece is None else (counters, _attempts.setdefault(piece, Counters())):
            for name, amount in amounts.items():
                setattr(tally, name, getattr(tally, name) + amount)


def render(now: Counters, *, seconds: float, rate: float) -> str:
    """One line for a person: the phase, how far, records and records/s."""
    line = f"{now.phase}: {now.read:,} records"
    if now.phase == "merging":
        line = f"merging: {now.merged} of {now.shards} shards"
    elif now.total and now.done:
        line += f", {min(100.0, 100 * now.done / now.total):.0f} %"
    if rate and now.phase != "merging":
        line += f", {rate:,.0f} records/s"
    if now.rejected:
        line += f", {now.rejected:,} rejected"
    return f"{line}  [{seconds:.0f} s]"


class Display:
    """Shows the counters while its `with` block runs: in place on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, *, stream: TextIO | None = None, enabled: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._enabled = enabled
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._begun = time.monotonic()

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
        seen, at = ("", 0), time.monotonic()
        while not self._stop.wait(0.5 if self._tty else 10):
            now, moment = dataclasses.replace((*_of_workers, counters)[0]), time.monotonic()
            rate = (now.read - seen[1]) / (moment - at) if seen[0] == now.phase else 0.0
            seen, at = (now.phase, now.read), moment
            line = render(now, seconds=moment - self._begun, rate=max(rate, 0.0))
            self._stream.write(f"\r\x1b[K{line}" if self._tty else f"{line}\n")
            self._stream.flush()
