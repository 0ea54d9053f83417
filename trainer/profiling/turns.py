"""Times several ways to do one thing in turns, round after round: what else the machine does meets all alike."""

from __future__ import annotations

import collections
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock:
    """What time is read from.

    Attributes:
      wall: seconds that have passed.
      cpu: seconds of CPU that this process has used.
    """

    wall: Callable[[], float]
    cpu: Callable[[], float]


CLOCK = Clock(wall=time.perf_counter, cpu=time.process_time)


@dataclasses.dataclass
class Rounds:
    """Says which way's turn it is, step by step: iterate over it, and do a step of each way that it names.

    Attributes:
      ways: by name.
      length: how long.
      heavy: ways that are left out where their turns would take too long, and how many steps of the first way one of
        their steps is worth.
      ahead: batches that a way may have made ahead while others had their turns: that many of its steps are not timed,
        though for no longer than a turn.
      tell: is told what goes on.
      costs: of each turn, by way, as they come.
      clock: what the turns are timed by.
      short: how many turns, by way, were too short to use up what was made ahead, and to time as many steps again.
    """

    ways: Sequence[str]
    length: Length
    heavy: Mapping[str, float] = dataclasses.field(default_factory=dict)
    ahead: Mapping[str, int] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None
    clock: Clock = CLOCK
    costs: dict[str, list[Cost]] = dataclasses.field(default_factory=dict)
    short: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def __iter__(self) -> Iterator[str]:
        turn_seconds = self.length.seconds / self.length.rounds / len(self.ways)
        seconds: dict[str, float] = {}
        for way in self.ways:
            if seconds and WARM_UP * self.heavy.get(way, 0) * min(seconds.values()) > turn_seconds:
                continue
            self.tell(f"warming up: {way}")
            for _ in range(WARM_UP):
                begun = self.clock.wall()
                yield way
                seconds[way] = self.clock.wall() - begun
        begun = self.clock.wall()
        for i in range(self.length.rounds):
            if i >= LEAST_ROUNDS and self.clock.wall() - begun >= self.length.seconds:
                break
            for way in seconds:
                self.tell(f"round {i + 1} of {self.length.rounds}: {way}")
                yield from self._turn(way, turn_seconds)

    def _turn(self, way: str, seconds: float) -> Iterator[str]:
        """Names the way until its turn is over, and notes what a step of it cost."""
        ahead, asked, clock = self.ahead.get(way, 0), self.length.steps, self.clock

        def over(share: float) -> bool:
            """Whether this share of a turn is."""
            return passed() >= share * seconds if asked is None else steps >= share * asked

        def passed() -> float:
            return clock.wall() - begun

        steps, begun = 0, clock.wall()
        while steps == 0 or not over(SETTLING) or (steps < ahead and passed() < seconds):
            yield way
            steps += 1
        settled = steps >= ahead
        steps, begun, cpu = 0, clock.wall(), clock.cpu()
        while steps == 0 or not over(1 - SETTLING if asked is None else 1):
            yield way
            steps += 1
        cost = Cost(passed() / steps, (clock.cpu() - cpu) / steps)
        self.costs.setdefault(way, []).append(cost)
        if not settled or steps < ahead:
            self.short[way] += 1

    def hurried(self) -> set[str]:
        """Ways of which half the turns or more were too short, so that their medians are not certain."""
        return {way for way, turns in self.short.items() if 2 * turns >= len(self.costs[way])}

    def medians(self) -> dict[str, Cost]:
        """The median cost of a step, by way; those that had no turn are missing."""
        return {
            way: Cost(statistics.median(c.seconds for c in costs), statistics.median(c.cpu for c in costs))
            for way, costs in self.costs.items()
        }
