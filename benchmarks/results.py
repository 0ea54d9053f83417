"""The figures in results.json: every run of every contest, with the machine, the versions and the load."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contests import Contest
from benchmarks.measure import Figures

PATH = Path(__file__).parent / "results.json"


@dataclasses.dataclass(frozen=True)
class Results:
    """By contest: the `conditions` (see `benchmarks.measure`), and `runs`, the figures of each candidate's runs."""

    contests: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def with_contest(
        self, contest: Contest, runs: Mapping[str, Sequence[Figures]], conditions: Mapping[str, str]
    ) -> Results:
        """Returns these results with a new measurement of one contest."""
        measured = {
            "conditions": conditions,
            "runs": {name: [dataclasses.asdict(run) for run in figures] for name, figures in runs.items()},
        }
        return Results({**self.contests, contest.name: measured})

    def conditions(self, contest: str) -> Mapping[str, str]:
        """The conditions under which a contest was measured."""
        return self.contests[contest]["conditions"]

    def runs(self, contest: str) -> dict[str, list[Figures]]:
        """The runs of each candidate; empty if the contest was not measured."""
        runs = self.contests.get(contest, {}).get("runs", {})
        return {name: [Figures(**figures) for figures in of_candidate] for name, of_candidate in runs.items()}

    def median(self, contest: str, candidate: str, figure: Callable[[Figures], float | None]) -> float | None:
        """The median of one figure over a candidate's runs; None if it has none."""
        values = [value for run in self.runs(contest).get(candidate, ()) if (value := figure(run)) is not None]
        return statistics.median(values) if values else None

    def rates(self, contest: str) -> dict[str, float]:
        """The median rate of each candidate."""
        return {name: statistics.median(run.rate for run in runs) for name, runs in self.runs(contest).items()}


def shown(rate: float) -> str:
    """A rate as tables and plots show it: a whole number, or three digits below 100."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def load(path: Path = PATH) -> Results:
    """Reads the stored results; empty if there are none."""
    return Results(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Results()


def save(results: Results, path: Path = PATH) -> None:
    """Writes the results."""
    path.write_text(json.dumps(results.contests, indent=1) + "\n", encoding="utf-8")
