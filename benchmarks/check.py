"""Checks the output of a measured way against its source, so that no way is faster because it does less."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.sources import Source
from benchmarks.task import Task


def compare(what: str, figures: Figures, source: Source) -> None:
    """Compares the records that were read in one pass with the source.

    Raises:
      WorkFailed: the number of rows or the classes differ.
    """
    if figures.count != source.rows:
        raise WorkFailed(f"{what}: {figures.count:,} records, and the source holds {source.rows:,}")
    found = {int(label): rows for label, rows in (figures.classes or {}).items()}
    if not found:  # records that were not parsed
        return
    if source.exact and found != source.classes:
        raise WorkFailed(f"{what}: classes {found}, and the source has {source.classes}")
    total = sum(source.classes.values())
    for label, rows in source.classes.items():
        share, expected = found.get(label, 0) / figures.count, rows / total
        if abs(share - expected) > 0.1 * expected + 0.02 + 3 * (expected / figures.count) ** 0.5:
            raise WorkFailed(f"{what}: class {label} is {share:.3f} of the records, and {expected:.3f} of the source")


def check_written(what: str, task: Task, source: Source, under: Sequence[str] = ()) -> None:
    """Reads a writer's output back, and compares it with the source."""
    again = Task(source=task.output, table=task.table, rows=source.rows)
    compare(what, measure("benchmarks.read_back:read", again, under=under), source)
