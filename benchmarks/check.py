"""Holds what a measured way has made against its source: one that is quick because it does less is no rival."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.sources import Source
from benchmarks.task import Task


def compare(what: str, figures: Figures, source: Source) -> None:
    """Holds what was read in one pass against what is in the source.

    Raises:
      WorkFailed: rows are missing, or the classes are others.
    """
    if figures.count != source.rows:
        raise WorkFailed(f"{what}: {figures.count:,} records, and the source holds {source.rows:,}")
    found = {int(label): rows for label, rows in (figures.classes or {}).items()}
    if not found:  # records that nothing parses
        return
    if source.exact and found != source.classes:
        raise WorkFailed(f"{what}: classes {found}, and the source has {source.classes}")
    total = sum(source.classes.values())
    for label, rows in source.classes.items():
        share, expected = found.get(label, 0) / figures.count, rows / total
        if abs(share - expected) > 0.1 * expected + 0.02 + 3 * (expected / figures.count) ** 0.5:
            raise WorkFailed(f"{what}: class {label} is {share:.3f} of the records, and {expected:.3f} of the source")


def check_written(what: str, task: Task, source: Source, under: Sequence[str] = ()) -> None:
    """Reads a writer's output back."""
    again = Task(source=task.output, table=task.table, rows=source.rows)
    compare(what, measure("benchmarks.read_back:read", again, under=under), source)
