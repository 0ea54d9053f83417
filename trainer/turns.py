"""Times several ways to do one thing in turns, round after round: what else the machine does meets all alike."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

SETTLING = 1 / 3  # of a turn: what was made ahead while others had theirs is used up then, and is not timed
WARM_UP = 3  # steps of each way before the first round: files are opened, buffers filled, graphs optimized
LEAST_ROUNDS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Length:
    """How long is measured.

    Attributes:
      seconds: of all turns together; there are two rounds at least, however long they take.
      rounds: at most.
      steps: that each turn times; None: as many as fit in `seconds`.
    """

    seconds: float
    rounds: int
    steps: int | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a step costs: wall-clock seconds, and seconds of CPU, of all cores together."""

    seconds: float
    cpu: float

    def beyond(self, other: Cost) -> Cost:
        """What this costs more than another; nothing where it costs less."""
        return Cost(max(0.0, self.seconds - other.seconds), max(0.0, self.cpu - other.cpu))


@dataclasses.dataclass
class Rounds:
    """Says which way's turn it is, step by step: iterate over it, and do a step of each way that it names.

    Attributes:
      ways: by name.
      length: how long.
      heavy: ways that are left out where their turns would take too long, and how many steps of the first way one of
        their steps is worth.
      tell: is told what goes on.
      costs: of each turn, by way, as they come.
    """

    ways: Sequence[str]
    length: Length
    heavy: Mapping[str, float] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None
    costs: dict[str, list[Cost]] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        turn_seconds = self.length.seconds / self.length.rounds / len(self.ways)
        seconds: dict[str, float] = {}
        for way in self.ways:
            if seconds and WARM_UP * self.heavy.get(way, 0) * min(seconds.values()) > turn_seconds:
                continue
            self.tell(f"warming up: {way}")
            for _ in range(WARM_UP):
                begun = time.perf_counter()
                yield way
                seconds[way] = time.perf_counter() - begun
        begun = time.perf_counter()
        for i in range(self.length.rounds):
            if i >= LEAST_ROUNDS and time.perf_counter() - begun >= self.length.seconds:
                break
            for way in seconds:
                self.tell(f"round {i + 1} of {self.length.rounds}: {way}")
                yield from self._turn(way, turn_seconds)

    def _turn(self, way: str, seconds: float) -> Iterator[str]:
        """Names the way until its turn is over, and notes what a step of it cost."""
        steps, begun = 0, time.perf_counter()
        settling = SETTLING * (seconds if self.length.steps is None else self.length.steps)
        while steps == 0 or (time.perf_counter() - begun if self.length.steps is None else steps) < settling:
            yield way
            steps += 1
        steps, started, cpu = 0, time.perf_counter(), time.process_time()
        while steps == 0 or (
            time.perf_counter() - begun < seconds if self.length.steps is None else steps < self.length.steps
        ):
            yield way
            steps += 1
        cost = Cost((time.perf_counter() - started) / steps, (time.process_time() - cpu) / steps)
        self.costs.setdefault(way, []).append(cost)

    def medians(self) -> dict[str, Cost]:
        """The median cost of a step, by way; those that had no turn are missing."""
        return {
            way: Cost(statistics.median(c.seconds for c in costs), statistics.median(c.cpu for c in costs))
            for way, costs in self.costs.items()
        }
