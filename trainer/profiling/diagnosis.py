"""The diagnosis of a measured training: verdict, table, JSON. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trainer.profiling.turns import Cost

SMALL_SHARE = 0.1  # of a step: an input that costs less does not matter
WORTHWHILE = 0.9  # of the time before: a change that saves less is not recommended


@dataclasses.dataclass(frozen=True)
class Tried:
    """A setting that was changed, and the cost of a batch of the input alone before and after.

    Attributes:
      setting: the flag or schema key, as it is typed.
      before, after: a batch of the input alone.
      sampled: whether both read a sample of the records.
    """

    setting: str
    before: Cost
    after: Cost
    sampled: bool = False

    @property
    def cpu_ratio(self) -> float:
        """The CPU of a batch beside what it was; 1 if the clock saw none of either."""
        return max(self.after.cpu, 1e-9) / max(self.before.cpu, 1e-9)

    @property
    def is_faster(self) -> bool:
        """Whether it clearly takes less time, and not clearly more CPU."""
        return self.after.seconds < WORTHWHILE * self.before.seconds and self.cpu_ratio < 1 / WORTHWHILE

    @property
    def pays(self) -> bool:
        """Whether a batch takes clearly less time or CPU, and not clearly more of the other."""
        ratios = self.after.seconds / self.before.seconds, self.cpu_ratio
        return min(ratios) < WORTHWHILE and max(ratios) < 1 / WORTHWHILE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The measurements of a training. All costs are those of a step, which takes one batch.

    Attributes:
      batch_size: examples a step.
      training: a step fed from the dataset.
      memory: a step fed with the same batch each time, from memory.
      alone: a batch of the complete input, without a model.
      stages: what each stage of the input adds, in order: differences between prefixes of the pipeline.
      to_device: what copying a batch to the accelerator adds; None where there is none.
      busy: seconds of a step from the dataset in which the accelerator computes; None where there is none, or where
        TensorFlow's trace does not tell.
      bigger: a step with a larger batch from memory, and that batch's size; None where it was not measured.
      tried: changes of the input.
      changed: a step of training with the change of that name.
      sample: a step fed from the unchanged sample of the records; None where it was not measured.
      held: whether the split is held in memory.
      short: whether turns of the input were too short to use up what it had prefetched.
      apart: changes that need a process of their own; before and after are a training step, each in such a process.
      why_none_apart: why there are none; "" where there are.
    """

    batch_size: int
    training: Cost
    memory: Cost
    alone: Cost
    stages: Mapping[str, Cost]
    to_device: Cost | None = None
    busy: float | None = None
    bigger: tuple[int, Cost] | None = None
    tried: tuple[Tried, ...] = ()
    changed: Mapping[str, Cost] = dataclasses.field(default_factory=dict)
    sample: Cost | None = None
    held: bool = False
    short: bool = False
    apart: tuple[Tried, ...] = ()
    why_none_apart: str = ""

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
        """Settings to change with their measurements, the best one first; empty if none helped."""
        apart = sorted((t for t in self.apart if t.is_faster), key=lambda t: t.after.seconds)
        told = [f"{t.setting}: a training step takes {_ms(t.after)} instead of {_ms(t.before)}" for t in apart]
        if self.bound_by == "model":
            return [*self._larger_batch(), *told]
        paying = sorted((t for t in self.tried if t.pays), key=lambda t: t.cpu_ratio)
        return [*(self._advised(t) for t in paying), *told]

    def _larger_batch(self) -> list[str]:
        if self.bigger is None:
            return []
        size, cost = self.bigger
        now, then = self.batch_size / self.memory.seconds, size / cost.seconds
        faster = then * WORTHWHILE > now
        return [f"--batch_size {size}: {then:,.0f} examples/s instead of {now:,.0f}, from memory"] if faster else []

    def _advised(self, tried: Tried) -> str:
        where = "both measured on a sample of the records, " if tried.sampled else ""
        text = f"{tried.setting}: {where}the input alone takes {_ms(tried.after)} instead of {_ms(tried.before)}"
        before, after = self.sample if tried.sampled else self.training, self.changed.get(tried.setting)
        if before is None or after is None:
            return text
        return f"{text}; a training step takes {after.seconds * 1e3:.2f} ms instead of {before.seconds * 1e3:.2f} ms"

    @property
    def why_none(self) -> str:
        """Why there is no advice."""
        if self.bound_by == "model" and self.bigger is None:
            return "a larger batch was not tried, because it would take too long: raise --seconds"
        if self.bound_by != "model" and not self.tried:
            return "there was no other setting to try"
        return "no setting that was tried makes training clearly faster"

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

    def table(self) -> str:
        """The figures, one per line."""
        lines = [f"{'':<38}{'ms':>10}{'ms CPU':>10}{'steps/s':>10}{'examples/s':>12}"]

        def line(name: str, cost: Cost, batch: int | None = None) -> None:
            rates = ""
            if batch is not None:
                rates = f"{1 / cost.seconds:>10,.1f}{batch / cost.seconds:>12,.0f}"
            lines.append(f"{name:<38}{cost.seconds * 1e3:>10.2f}{cost.cpu * 1e3:>10.2f}{rates}")

        line("training from the dataset", self.training, self.batch_size)
        line("training from memory", self.memory, self.batch_size)
        if self.bigger is not None:
            line(f"training from memory, batch {self.bigger[0]:,}", self.bigger[1], self.bigger[0])
        if self.sample is not None:
            line("training from a sample, as it is", self.sample, self.batch_size)
        for name, cost in self.changed.items():
            line(f"training with {name.partition(',')[0]}"[:38], cost, self.batch_size)
        line("input alone", self.alone, self.batch_size)
        for name, cost in self.stages.items():
            line(f"  {name}", cost)
        if self.to_device is None:
            lines.append("  to the device: nothing, training runs on the CPU, which has no idle time of its own")
        else:
            line("  to the device", self.to_device)
            idle = "TensorFlow's trace does not tell" if self.idle is None else f"{self.idle:.0%} of a step"
            lines.append(f"  the device is idle: {idle}")
        for tried in self.tried:
            if not tried.sampled:
                line(f"  with {tried.setting.partition(',')[0]}"[:38], tried.after)
        of_sample = [tried for tried in self.tried if tried.sampled]
        for tried in of_sample[:1]:
            line("  of a sample of the records, as it is", tried.before)
        for tried in of_sample:
            line(f"    with {tried.setting.partition(',')[0]}"[:38], tried.after)
        for tried in self.apart[:1]:
            line("training in a process of its own", tried.before, self.batch_size)
        for tried in self.apart:
            line(f"  with {tried.setting}"[:38], tried.after, self.batch_size)
        if not self.apart and self.why_none_apart:
            lines.append(f"threads of the model, --drop_remainder: not tried, {self.why_none_apart}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """All measurements, in seconds, and the conclusions."""
        return {
            **dataclasses.asdict(self),
            "share": self.share,
            "idle": self.idle,
            "bound_by": self.bound_by,
            "costliest": self.costliest,
            "verdict": self.verdict,
            "caution": self.caution,
            "advice": self.advice,
        }


def differences(prefixes: Mapping[str, Cost]) -> dict[str, Cost]:
    """What each stage adds to the prefix before it, except the last, which is the complete input with prefetching.

    A prefix that runs on several cores may take less time than a shorter one on a single core: it then adds nothing.
    """
    found, before = {}, Cost(0, 0)
    for name, cost in list(prefixes.items())[:-1]:
        found[name], before = cost.beyond(before), cost
    return found


def _ms(cost: Cost) -> str:
    return f"{cost.seconds * 1e3:.2f} ms ({cost.cpu * 1e3:.2f} ms of CPU)"
