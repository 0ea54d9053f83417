"""`benchmarks/results.json`: every run of every contest, and the medians that tables and plots show."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contests import Contest
from benchmarks.measure import Figures

PATH = Path(__file__).parent / "results.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Medians:
    """Of the runs of one way: units a second, seconds of CPU each, bytes, and seconds of the whole process."""

    runs: int
    rate: float
    cpu_each: float
    peak_bytes: float | None
    whole_seconds: float
    whole_cpu: float

    @classmethod
    def of(cls, runs: Sequence[Figures]) -> Medians:
        peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
        return cls(
            runs=len(runs),
            rate=statistics.median(run.rate for run in runs),
            cpu_each=statistics.median(run.cpu_each for run in runs),
            peak_bytes=statistics.median(peaks) if peaks else None,
            whole_seconds=statistics.median(run.whole_seconds for run in runs),
            whole_cpu=statistics.median(run.whole_cpu for run in runs),
        )


@dataclasses.dataclass(frozen=True)
class Results:
    """By contest: `machine` (see `benchmarks.machine`), `load` when it began, and `runs` by the way's name."""

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
        """With one contest measured anew, or with more rounds of it; the others stay."""
        before = self.contests.get(contest.name, {}).get("runs", {}) if more else {}
        entry = {
            "title": contest.title,
            "unit": contest.unit,
            "machine": dict(machine),
            "load": round(load, 1),
            "runs": {
                name: before.get(name, []) + [dataclasses.asdict(run) for run in each] for name, each in runs.items()
            },
        }
        return Results({**self.contests, contest.name: entry})

    def of_real_data(self, contest: str) -> bool:
        """Whether the contest's inputs were the real files, and not made samples."""
        return bool(self.contests[contest]["machine"].get("real_data") == "true")

    def medians(self, contest: str) -> dict[str, Medians]:
        """By the way's name; empty where the contest was not measured."""
        runs = self.contests.get(contest, {}).get("runs", {})
        return {name: Medians.of([Figures(**run) for run in each]) for name, each in runs.items()}


def load(path: Path = PATH) -> Results:
    """What was measured before, if anything."""
    return Results(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Results()


def save(results: Results, path: Path = PATH) -> None:
    """Writes them all."""
    path.write_text(json.dumps(results.contests, indent=1) + "\n", encoding="utf-8")
