"""Times steps in turns, round after round, so that other load affects all; and the diagnosis of a training by them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas.command import duration
from schemas.errors import counted

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """What a training takes beside its steps, in seconds, as a short one of the same plan has shown.

    Attributes:
      told: the plan, as `train` says it.
      steps, evaluations: how many there are at most.
      start: the libraries, and the graphs of training and evaluation.
      step, checkpoint, evaluation: each of them.
      exports: the best and the last, with their checks.
      report: the one at the end, with its pictures.
    """

    told: str
    steps: int
    evaluations: int
    start: float
    step: float
    checkpoint: float
    evaluation: float
    exports: float
    report: float

    @property
    def parts(self) -> dict[str, float]:
        """The seconds of all of each kind."""
        return {
            "start": self.start,
            counted(self.steps, "steps"): self.steps * self.step,
            counted(self.evaluations, "checkpoints"): self.evaluations * self.checkpoint,
            counted(self.evaluations, "evaluations"): self.evaluations * self.evaluation,
            "exports": self.exports,
            "report": self.report,
        }

    @property
    def seconds(self) -> float:
        """Of the whole training, if it does not end early."""
        return sum(self.parts.values())

    @property
    def rate(self) -> float:
        """Steps a second of the whole training."""
        return self.steps / self.seconds

    def lines(self) -> list[str]:
        """The plan, its parts, and what they come to."""
        parts = (f"  {name:<36}{seconds:>10.1f}{seconds / self.seconds:>10.0%}" for name, seconds in self.parts.items())
        in_all = f"In all {duration(self.seconds)} at most: {self.rate:,.1f} steps/s, where steps alone make "
        return ["", f"{'train would take':<38}{'s':>10}", *parts, f"{in_all}{1 / self.step:,.1f}.", f"  {self.told}"]


@dataclasses.dataclass(frozen=True)
class Tried:
    """The seconds of a step by other numbers of threads, as flags of `train`; '' is what was given.

    Attributes:
      seconds: each by a process of its own.
      left: those that there was no time for, or that failed.
    """

    seconds: Mapping[str, float]
    left: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def better(self) -> dict[str, float]:
        """By flags, the share of a step that they save, the most first; less than `SMALL_SHARE` may be chance."""
        usual = self.seconds.get("", 0.0)
        saved = {flags: 1 - seconds / usual for flags, seconds in self.seconds.items() if usual}
        found = sorted(saved.items(), key=lambda item: -item[1])
        return {flags: share for flags, share in found if share >= SMALL_SHARE}

    def lines(self) -> list[str]:
        """The figures, and those that are worth a try."""
        rows = (f"  {flags or 'as given':<40}{s * 1e3:>10.2f}" for flags, s in self.seconds.items())
        worth = ", ".join(f"{flags} ({share:.0%} of a step less)" for flags, share in self.better.items())
        told = f"Threads worth a try: {worth}." if worth else "None of these makes steps a tenth faster."
        left = [f"  no time was left for {', '.join(self.left)}; give more --seconds"] if self.left else []
        failed = [f"  failed: {', '.join(self.failed)}"] if self.failed else []
        return ["", f"{'a step by threads':<42}{'ms':>10}", *rows, *left, *failed, told]


SMALL_SHARE = 0.1  # of a step: an input that costs less does not matter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The measurements of a training. All costs are those of a step, which takes one batch.

    Attributes:
      batch_size: examples a step.
      training: a step fed from the dataset.
      memory: a step fed with the same batch each time, from memory.
      alone: a batch of the complete input, without a model.
      stages: what each stage of the input adds, in order: differences between prefixes of the pipeline.
      settings: by stage, the settings that would make it cheaper, as they are typed.
      to_device: what copying a batch to the accelerator adds; None where there is none.
      busy: seconds of a step from the dataset in which the accelerator computes; None where there is none, or where
        TensorFlow's trace does not tell.
      held: whether the split is held in memory.
      short: whether turns of the input were too short to use up what it had prefetched.
      whole: what the training takes in all; None where that was not measured.
      threads: steps by other numbers of threads; None likewise.
    """

    batch_size: int
    training: Cost
    memory: Cost
    alone: Cost
    stages: Mapping[str, Cost]
    settings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    to_device: Cost | None = None
    busy: float | None = None
    held: bool = False
    short: bool = False
    whole: Whole | None = None
    threads: Tried | None = None

    @property
    def share(self) -> float:
        """The share of a step that the input costs: what a batch from memory saves."""
        return max(0.0, 1 - self.memory.seconds / self.training.seconds)

    @property
    def idle(self) -> float | None:
        """The share of a step from the dataset in which the accelerator waits; None where that is unknown."""
        return None if self.busy is None else max(0.0, 1 - self.busy / self.training.seconds)

    @property
    def bound_by(self) -> str:
        """`model`, `input`, or `both`, where the model sets the pace and the input slows it down."""
        if self.share < SMALL_SHARE:
            return "model"
        hidden = self.alone.seconds < min(self.memory.seconds, 0.9 * self.training.seconds)  # behind the model's step
        return "both" if hidden and self.share < 0.5 else "input"

    @property
    def costliest(self) -> str:
        """The stage that takes most CPU."""
        return max(self.stages, key=lambda name: self.stages[name].cpu)

    @property
    def advice(self) -> list[str]:
        """The settings to change, those of the costliest stage first; empty if there are none."""
        if self.bound_by == "model":
            return [f"--batch_size {4 * self.batch_size}: a step costs less for each example, as far as memory allows"]
        stages = sorted(self.settings, key=lambda name: self.stages[name].cpu, reverse=True)
        return [f"{setting}: makes {name} cheaper" for name in stages for setting in self.settings[name]]

    @property
    def caution(self) -> str:
        """A warning about the accuracy of the figures; empty if there is none."""
        if not self.short:
            return ""
        return (
            "The turns were too short to use up the rows that the input had prefetched, so the costs of the input and "
            "its stages are uncertain: raise --seconds."
        )

    @property
    def verdict(self) -> str:
        """What training is bound by, in one or two sentences."""
        step, memory, alone = (f"{c.seconds * 1e3:.2f} ms" for c in (self.training, self.memory, self.alone))
        measured = f"a step takes {step}, and {memory} where its batch is in memory already"
        most = f"{self.costliest} costs most of it, {self.stages[self.costliest].cpu * 1e3:.2f} ms of CPU a batch"
        if self.bound_by == "model":
            return f"Training is bound by the model: {measured}, so the input costs {self.share:.0%} of it."
        if self.bound_by == "input":
            return f"Training is bound by its input: {measured}. The input alone makes a batch in {alone}; {most}."
        return (
            f"Training is bound by the model, and its input takes cores from it: {measured}, so the input costs "
            f"{self.share:.0%} of it. The input alone makes a batch in {alone}; {most}."
        )

    def as_text(self) -> str:
        """The figures, one per line, and what follows from them."""
        lines = [f"{'':<38}{'ms':>10}{'ms CPU':>10}{'steps/s':>10}{'examples/s':>12}"]
        steps = {"training from the dataset": self.training, "training from memory": self.memory}
        steps["input alone"] = self.alone
        stages = {f"  {name}": cost for name, cost in self.stages.items()}
        if self.to_device is not None:
            stages["  to the device"] = self.to_device
        for name, cost in {**steps, **stages}.items():
            rates = f"{1 / cost.seconds:>10,.1f}{self.batch_size / cost.seconds:>12,.0f}" if name in steps else ""
            lines.append(f"{name:<38}{cost.seconds * 1e3:>10.2f}{cost.cpu * 1e3:>10.2f}{rates}")
        if self.to_device is None:
            lines.append("  to the device: nothing, training runs on the CPU, which has no idle time of its own")
        else:
            idle = "TensorFlow's trace does not tell" if self.idle is None else f"{self.idle:.0%} of a step"
            lines.append(f"  the device is idle: {idle}")
        advice = self.advice or ["no setting is known to make training faster"]
        lines += ["", self.verdict, *(f"  {line}" for line in advice)]
        lines += [self.caution] if self.caution else []
        for more in (self.whole, self.threads):
            lines += more.lines() if more is not None else []
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """All measurements, in seconds, and the conclusions."""
        drawn = ("share", "idle", "bound_by", "costliest", "verdict", "caution", "advice")
        found = {**dataclasses.asdict(self), **{name: getattr(self, name) for name in drawn}}
        if self.whole is not None:
            found["whole"] |= {"seconds": self.whole.seconds, "rate": self.whole.rate}
        return found


def differences(prefixes: Mapping[str, Cost]) -> dict[str, Cost]:
    """What each stage adds to the prefix before it, except the last, which is the complete input with prefetching.

    A prefix that runs on several cores may take less time than a shorter one on a single core: it then adds nothing.
    """
    found, before = {}, Cost(0, 0)
    for name, cost in list(prefixes.items())[:-1]:
        found[name], before = cost.beyond(before), cost
    return found
