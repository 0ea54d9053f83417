"""What came of the loop: accuracy by day as a plot and a table, and what became of requests, rows and models."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.report.charts import Axis, Chart, Dots, Line, Rule
from tools.demo_traffic import Counts


@dataclasses.dataclass(frozen=True)
class Day:
    """A day.

    Attributes:
      number: from 1.
      served: the accuracy of what was answered.
      frozen: the accuracy of the first model on the same rows.
      decision: what was decided in the evening about the model that was trained then.
    """

    number: int
    served: float
    frozen: float
    decision: str


def draw(path: Path, days: Sequence[Day], drift_day: int) -> None:
    """Draws accuracy by day, with and without refresh.

    Args:
      path: the PNG to write.
      days: all days, in order.
      drift_day: the first one on which the data is another.
    """
    numbers = [day.number for day in days]
    fresh = [day for before, day in itertools.pairwise(days) if before.decision == "promoted"]
    marks = (
        Rule(x=drift_day - 0.5),
        Line(numbers, [day.frozen for day in days], "soft", "the first model", dots=True),
        Line(numbers, [day.served for day in days], 0, "as served", dots=True),
        Dots([day.number for day in fresh], [day.served for day in fresh], 1, "by a new model"),
    )
    title = f"Accuracy by day; the data changes before day {drift_day}"
    chart = Chart(title, marks, Axis("day", whole=True), Axis("accuracy"), size=(480, 250))
    path.write_bytes(chart.png())


def summary(days: Sequence[Day], counts: Counts, totals: Mapping[str, int]) -> str:
    """What happened, for people.

    Args:
      days: all days, in order.
      counts: what became of requests.
      totals: how many rows were `stored`, `labelled` and `appended`.
    """
    lines = ["", "day   as served   first model   in the evening"]
    lines += [f"{day.number:>3}   {day.served:>9.3f}   {day.frozen:>11.3f}   {day.decision}" for day in days]
    promoted = sum(day.decision == "promoted" for day in days)
    by_number = sorted(counts.versions.items(), key=lambda item: (len(item[0]), item[0]))
    versions = ", ".join(f"{count:,} by version {name or 'none'}" for name, count in by_number)
    lines += [
        "",
        f"{counts.sent:>8,} requests were sent, {counts.failed:,} failed: {versions}",
        f"{totals['stored']:>8,} were in the store when the last labels arrived",
        f"{totals['labelled']:>8,} received their label, {totals['appended']:,} of them were added to the dataset",
        f"{promoted:>8,} models were put in service, {len(days) - promoted:,} were not",
        *(f"failed   {fault}" for fault in counts.faults),
    ]
    return "\n".join(lines)
