"""Runs a contest round after round, and checks each way's output, so that no way is faster because it does less."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from collections.abc import Sequence

from benchmarks.contests import Contest, Entry
from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.results import shown
from benchmarks.sources import Source, Sources
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


@dataclasses.dataclass(frozen=True)
class Failure:
    """A way that failed, in which contest, and why."""

    contest: str
    way: str
    why: str

    def __str__(self) -> str:
        return f"{self.contest}: {self.way}: {self.why}"


def prepare(contest: Contest, sources: Sources) -> tuple[list[Entry], list[Failure]]:
    """Makes the inputs of a contest. Returns the ways that have their input, and failures of those that have not."""
    failed: dict[str, str] = {}
    for name in dict.fromkeys(entry.source for entry in contest.entries):
        try:
            sources[name]
        except Exception as error:  # any error: the other contests are still measured
            failed[name] = f"its input, {name}: {error!r}"
    ready = [entry for entry in contest.entries if entry.source not in failed]
    failures = [Failure(contest.name, e.name, failed[e.source]) for e in contest.entries if e.source in failed]
    return ready, failures


def run_entry(contest: Contest, entry: Entry, source: Source, options: argparse.Namespace, *, check: bool) -> Figures:
    """Measures one way once; if `check`, also checks its output."""
    task = Task(source=source.path, table=contest.table, rows=source.rows)
    if contest.kind == "read":
        task = dataclasses.replace(task, batch_size=contest.batch_size, shuffle_buffer=contest.shuffle_buffer)
        if check:
            compare(entry.name, measure(entry.does, task, under=options.under), source)
        return measure(
            entry.does, dataclasses.replace(task, epochs=0, seconds=options.size.seconds), under=options.under
        )
    output = tempfile.mkdtemp(dir=options.work)
    task = dataclasses.replace(task, output=output)
    try:
        figures = measure(entry.does, task, under=options.under)
        if check and contest.name != "startup" and entry.writes:
            check_written(entry.name, task, source, options.under)
    finally:
        shutil.rmtree(output)
    return figures


def run_rounds(
    contest: Contest, entries: list[Entry], sources: Sources, options: argparse.Namespace
) -> tuple[dict[str, list[Figures]], list[Failure]]:
    """Measures the entries, round after round. Each round starts with the next entry.

    Returns:
      The runs of each way that has any, and the ways that failed, which are not repeated.
    """
    runs: dict[str, list[Figures]] = {entry.name: [] for entry in entries}
    failures: dict[str, Failure] = {}
    for i in range(options.rounds):
        turn = i % len(entries) if entries else 0
        for entry in (*entries[turn:], *entries[:turn]):
            if entry.name in failures:
                continue
            label = f"{contest.name}, round {i + 1} of {options.rounds}: {entry.name}:"
            try:
                check = not (i or options.more)
                figures = run_entry(contest, entry, sources[entry.source], options, check=check)
            except Exception as error:  # any error, as above
                failures[entry.name] = Failure(contest.name, entry.name, str(error) or repr(error))
                print(f"{label} FAILED: {error}", flush=True)
                continue
            runs[entry.name].append(figures)
            print(
                f"{label} {shown(figures.rate)} {contest.unit}/s, {1e6 * figures.cpu_each:,.1f} us of CPU each, "
                f"{figures.whole_seconds:.1f} s in all",
                flush=True,
            )
    return {name: each for name, each in runs.items() if each}, list(failures.values())
