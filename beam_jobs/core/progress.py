"""Progress of the job in this process: counters that DoFns add to, and that `beam_jobs.core.display` shows.

`Pipeline.run` blocks, and the local runner runs DoFns in this very process, so a module-level registry, which DoFns
reach by import, is the plainest way to see them work. On another runner, what is shown comes from the runner's metrics
(`beam_jobs.core.workers`).
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Hashable

from schemas import interrupts


@dataclasses.dataclass
class Counters:
    """What the DoFns of this process have done since `reset`."""

    phase: str = "starting"
    passes: tuple[str, ...] = ()  # the phases that go through all records, in order
    total: int = 0  # of one pass over the input
    read: int = 0  # records, in this phase
    done: int = 0  # of total, in this phase: in pieces that are complete
    consumed: int = 0  # the same, with about as much as was read of pieces that are not complete yet
    rejected: int = 0
    written: int = 0  # shards
    shards: int = 0


counters = Counters()
_of_workers: list[Counters] = []  # what a runner's metrics say, which is shown instead of the counters of this process
_launched = threading.Event()
_attempts: dict[Hashable, Counters] = {}  # what the last attempt at each piece of the input added, in this phase
_lock = threading.Lock()
_begun: list[tuple[str, float]] = []  # the phases of this process's job, and when each began


def reset(*, total: int) -> None:
    """Begins a job, whose launcher is this process."""
    _launched.set()
    _of_workers.clear()
    vars(counters).update(vars(Counters(total=total, passes=counters.passes)))
    _begun[:] = [(counters.phase, time.monotonic())]
    _attempts.clear()


def expect(*passes: str) -> None:
    """Says which phases of the pipeline that is being built go through all records, in their order."""
    counters.passes = passes


def shown() -> Counters:
    """What to show now: what the runner's metrics say, or the counters of this process."""
    return dataclasses.replace((*_of_workers, counters)[0], passes=counters.passes)


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
            _begun.append((phase, time.monotonic()))
            counters.read = counters.done = counters.consumed = counters.rejected = 0
            _attempts.clear()


def phases() -> list[tuple[str, float]]:
    """The phases of the job in this process, and the seconds that each took; the last one up to now."""
    ends = [at for _, at in _begun[1:]] + [time.monotonic()]
    return [(phase, end - at) for (phase, at), end in zip(_begun, ends, strict=False)]


def begin(piece: Hashable) -> None:
    """Begins a piece of the input. What an earlier attempt at it added is taken back: runners run a bundle again."""
    with _lock:
        earlier = _attempts.pop(piece, Counters())
        counters.read -= earlier.read
        counters.done -= earlier.done
        counters.consumed -= earlier.consumed
        counters.rejected -= earlier.rejected


def add(piece: Hashable = None, **amounts: int) -> None:
    """Adds to the counters by name; of the input, what is of one piece."""
    interrupts.check()
    with _lock:
        for tally in (counters,) if piece is None else (counters, _attempts.setdefault(piece, Counters())):
            for name, amount in amounts.items():
                setattr(tally, name, getattr(tally, name) + amount)
