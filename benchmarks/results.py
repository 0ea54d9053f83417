"""Figures kept beside the code, with the machine and the versions: every run of every contest, and its medians."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.contests import Contest
from benchmarks.measure import Figures

FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Kept:
    """Stored figures; `machine` is from `benchmarks.machine`, with the `load` average at the start."""

    machine: Mapping[str, str]
    figures: Any

    def told(self) -> str:
        """A sentence under a table: the time, the inputs and the load."""
        inputs = "the real files" if self.machine["real_data"] == "true" else "synthetic samples"
        return f"Measured on {self.machine['date']} on {inputs}, at a load average of {self.machine['load']}."


def conditions(*, real_data: bool) -> dict[str, str]:
    """The conditions of a measurement that begins now."""
    return {**machine.describe(real_data=real_data), "load": f"{os.getloadavg()[0]:.1f}"}


def save_kept(name: str, kept: Kept) -> None:
    """Writes `name`.json."""
    (FOLDER / f"{name}.json").write_text(json.dumps(dataclasses.asdict(kept), indent=1) + "\n", encoding="utf-8")


def load_kept(name: str) -> Kept | None:
    """The stored figures; None if there are none."""
    path = FOLDER / f"{name}.json"
    return Kept(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


PATH = Path(__file__).parent / "results.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Medians:
    """Medians of the runs of one way: units per second, seconds of CPU per unit, bytes, seconds of the process."""

    rate: float
    cpu_each: float
    peak_bytes: float | None
    whole_seconds: float
    whole_cpu: float

    @classmethod
    def of(cls, runs: Sequence[Figures]) -> Medians:
        peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
        return cls(
            rate=statistics.median(run.rate for run in runs),
            cpu_each=statistics.median(run.cpu_each for run in runs),
            peak_bytes=statistics.median(peaks) if peaks else None,
            whole_seconds=statistics.median(run.whole_seconds for run in runs),
            whole_cpu=statistics.median(run.whole_cpu for run in runs),
        )


def shown(rate: float) -> str:
    """A rate as tables and plots show it: a whole number, or three digits below 100."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


@dataclasses.dataclass(frozen=True)
class Results:
    """By contest: `machine` (see `benchmarks.machine`), the `load` average at its start, and `runs` by way."""

    contests: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def with_contest(
        self,
        contest: Contest,
        runs: Mapping[str, Sequence[Figures]],
        machine: Mapping[str, str],
        *,
        load: float,
        more: bool = False,
    ) -> Results:
        """These results with a new measurement of one contest, or with more rounds of it."""
        before = self.contests.get(contest.name, {}).get("runs", {}) if more else {}
        entry = {
            "title": contest.title,
            "unit": contest.unit,
            "machine": dict(machine),
            "load": round(load, 1),
            "runs": {
                way.name: before.get(way.name, []) + [dataclasses.asdict(run) for run in runs.get(way.name, ())]
                for way in contest.entries
                if way.name in before or way.name in runs
            },
        }
        return Results({**self.contests, contest.name: entry})

    def of_real_data(self, contest: str) -> bool:
        """Whether the contest's inputs were the real files, and not synthetic samples."""
        return bool(self.contests[contest]["machine"].get("real_data") == "true")

    def medians(self, contest: str) -> dict[str, Medians]:
        """The medians by way; empty if the contest was not measured."""
        runs = self.contests.get(contest, {}).get("runs", {})
        return {name: Medians.of([Figures(**run) for run in each]) for name, each in runs.items()}


def load(path: Path = PATH) -> Results:
    """Reads the stored results; empty if there are none."""
    return Results(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Results()


def save(results: Results, path: Path = PATH) -> None:
    """Writes the results."""
    path.write_text(json.dumps(results.contests, indent=1) + "\n", encoding="utf-8")
