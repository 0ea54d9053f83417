"""Times several ways to do the same thing in turns, round after round, so that other load affects all equally."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

SETTLING = 1 / 3  # of a turn, not timed: uses up what was prefetched during other turns
WARM_UP = 3  # steps of each way before the first round: files are opened, buffers filled, graphs optimized
LEAST_ROUNDS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Length:
    """How long to measure.

    Attributes:
      seconds: of all turns together; there are at least two rounds, however long they take.
      rounds: the maximum.
      steps: the number that each turn times; None: as many as fit in `seconds`.
    """

    seconds: float
    rounds: int
    steps: int | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a step: wall-clock seconds, and CPU seconds of all cores together."""

    seconds: float
    cpu: float

    def beyond(self, other: Cost) -> Cost:
        """The excess over another cost; 0 if there is none."""
        return Cost(max(0.0, self.seconds - other.seconds), max(0.0, self.cpu - other.cpu))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock:
    """The clocks to read.

    Attributes:
      wall: seconds that have passed.
      cpu: seconds of CPU that this process has used.
    """

    wall: Callable[[], float]
    cpu: Callable[[], float]


CLOCK = Clock(wall=time.perf_counter, cpu=time.process_time)


@dataclasses.dataclass
class Rounds:
    """Schedules the ways: iterate over it, and do one step of each way that it yields.

    Attributes:
      ways: by name.
      length: how long to measure.
      ahead: how many batches a way may have prefetched during other turns: that many of its steps are not timed, but
        for no longer than a turn.
      tell: called with a line of progress.
      costs: those of each turn so far, by way.
      clock: times the turns.
      short: by way, how many turns were too short to use up what was prefetched and to time as many steps again.
    """

    ways: Sequence[str]
    length: Length
    ahead: Mapping[str, int] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None
    clock: Clock = CLOCK
    costs: dict[str, list[Cost]] = dataclasses.field(default_factory=dict)
    short: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def __iter__(self) -> Iterator[str]:
        turn_seconds = self.length.seconds / self.length.rounds / len(self.ways)
        for way in self.ways:
            self.tell(f"warming up: {way}")
            yield from itertools.repeat(way, WARM_UP)
        begun = self.clock.wall()
        for i in range(self.length.rounds):
            if i >= LEAST_ROUNDS and self.clock.wall() - begun >= self.length.seconds:
                break
            for way in self.ways:
                self.tell(f"round {i + 1} of {self.length.rounds}: {way}")
                yield from self.turn(way, turn_seconds)

    def turn(self, way: str, seconds: float) -> Iterator[str]:
        """Yields the way until its turn is over, and records the cost of a step."""
        ahead, asked, clock = self.ahead.get(way, 0), self.length.steps, self.clock

        def over(share: float) -> bool:
            """Whether this share of the turn is over."""
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
        """The ways of which at least half the turns were too short, so that their medians are uncertain."""
        return {way for way, turns in self.short.items() if 2 * turns >= len(self.costs[way])}

    def medians(self) -> dict[str, Cost]:
        """The median cost of a step, by way."""
        return {
            way: Cost(statistics.median(c.seconds for c in costs), statistics.median(c.cpu for c in costs))
            for way, costs in self.costs.items()
        }
