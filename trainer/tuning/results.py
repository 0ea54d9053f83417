"""The trials of a study as a table, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from schemas.command import duration
from trainer.tuning.progress import described
from trainer.tuning.records import DONE, PRUNED, Trial


@dataclasses.dataclass(frozen=True)
class Results:
    """What a study has found.

    Attributes:
      study: its folder.
      metric: the name of the metric.
      higher: whether its larger value is the better one.
      trials: all trials, by number.
      best: the best of those that are done; None where none is.
      command: what trains the best one again; empty where there is none.
      ended: why the study has ended.
      page: where the trials are shown.
    """

    study: str
    metric: str
    higher: bool
    trials: Sequence[Trial]
    best: Trial | None
    command: Sequence[str]
    ended: str
    page: str

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first; then those that were pruned, and those that have no value."""
        order = {DONE: 0, PRUNED: 1}
        sign = -1 if self.higher else 1
        return sorted(
            self.trials,
            key=lambda trial: (
                order.get(trial.state, 2),
                sign * trial.value if trial.value is not None else 0.0,
                trial.number,
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """It for --json."""
        return {
            "study": self.study,
            "metric": self.metric,
            "goal": "maximize" if self.higher else "minimize",
            "ended": self.ended,
            "best": None if self.best is None else dataclasses.asdict(self.best),
            "command": list(self.command),
            "report": self.page,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }

    def table(self) -> str:
        """The trials, a line each, the best first."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.values))
        rows = [["trial", "state", self.metric, "step", "time", *names]]
        for trial in self.ranked:
            found = ["", ""] if trial.value is None else [f"{trial.value:.5g}", f"{trial.step:,}"]
            took = duration(trial.seconds) if trial.ended else ""
            rows.append([str(trial.number), trial.state, *found, took, *(trial.values.get(name, "") for name in names)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        told = [f"trial {t.number} {described(t, self.metric)}" for t in self.trials if t.why and t.state != PRUNED]
        return "\n".join([*lines, *told])
