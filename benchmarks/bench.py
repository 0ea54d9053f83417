"""This project and what people use instead, side by side in one run.

    make bench                             # all of it; writes results, tables and plots
    python -m benchmarks.bench --quick     # small inputs, some minutes; prints, and writes nothing that is kept

Each measurement is a process of its own. In every round all ways of a contest take their turn, so that what else the
machine does falls on all alike; figures are medians of the rounds. What each way makes is read back in the first round.
With MILLRACE_TEST_DATA the inputs are the real files; else samples of the same shape.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import sys
import tempfile

from benchmarks import machine, report, results
from benchmarks.check import check_written, compare
from benchmarks.contests import CONTESTS, Contest, Entry
from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.sources import FULL, QUICK, REAL_DATA, Source, Sources
from benchmarks.task import Task

LONG = 60.0  # seconds; what takes longer is measured in the first round alone


def run_entry(contest: Contest, entry: Entry, source: Source, options: argparse.Namespace, *, check: bool) -> Figures:
    """Measures one way once, and, where asked, reads back what it makes."""
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
        if check and contest.name != "startup" and not entry.does.endswith(":write_nothing"):
            check_written(entry.name, task, source, options.under)
    finally:
        shutil.rmtree(output)
    return figures


def run_contest(contest: Contest, sources: Sources, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Measures every way, round after round; the order turns, so that none always follows the same one."""
    runs: dict[str, list[Figures]] = {entry.name: [] for entry in contest.entries}
    for i in range(options.rounds):
        turn = i % len(contest.entries)
        for entry in (*contest.entries[turn:], *contest.entries[:turn]):
            if any(run.whole_seconds > LONG for run in runs[entry.name]):
                continue
            figures = run_entry(contest, entry, sources[entry.source], options, check=not (i or options.more))
            runs[entry.name].append(figures)
            print(
                f"{contest.name}, round {i + 1}: {entry.name}: {figures.rate:,.0f} {contest.unit}/s, "
                f"{1e6 * figures.cpu_each:,.1f} us of CPU each, {figures.whole_seconds:.1f} s in all",
                flush=True,
            )
    return runs


class OtherConditions(ValueError):
    """More rounds are wanted of figures that were measured on another machine, other versions or other inputs."""


def with_measured(contest: Contest, sources: Sources, options: argparse.Namespace) -> results.Results:
    """The results that are kept, with this contest measured anew, or with more rounds of it.

    Raises:
      OtherConditions: the rounds cannot be added.
      WorkFailed: a way failed, or made something else than it should.
    """
    load = os.getloadavg()[0]
    told = machine.describe(real_data=all(sources[entry.source].real for entry in contest.entries))
    kept = results.load().contests.get(contest.name)
    if options.more and kept and not machine.alike(kept["machine"], told):
        raise OtherConditions(
            f"the rounds of {contest.name} that are kept are of another machine, other versions or other inputs "
            f"({REAL_DATA}); measure it anew, without --more"
        )
    runs = run_contest(contest, sources, options)
    found = results.Results() if options.quick else results.load()  # another run may have added to them
    return found.with_contest(contest, runs, told, load=load, more=options.more)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be 1 or more")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="small inputs, one round; nothing is written")
    p.add_argument("--only", metavar="NAMES", help=f"of {','.join(c.name for c in CONTESTS)}; the others' results stay")
    p.add_argument(
        "--more", action="store_true", help="add the rounds to those that are kept, of the same code and machine"
    )
    p.add_argument("--rounds", type=_rounds, metavar="N", help="(default: 3; 1 with --quick)")
    p.add_argument("--under", default="", metavar="COMMAND", help="run each measurement under it: 'taskset -c 0,1'")
    p.add_argument("--work", metavar="DIR", help="where inputs and outputs go (default: a temporary folder)")
    return p


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    options = parser().parse_args(argv)
    options.size = QUICK if options.quick else FULL
    if options.rounds is None:
        options.rounds = 1 if options.quick else 3
    options.under = tuple(shlex.split(options.under))
    names = options.only.split(",") if options.only else [c.name for c in CONTESTS if c.quick or not options.quick]
    unknown = set(names) - {c.name for c in CONTESTS}
    if unknown:
        print(f"benchmarks.bench: --only {','.join(sorted(unknown))}: no such contest", file=sys.stderr)
        return 2
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        options.work = folder
        sources = Sources(folder, options.size, under=options.under)
        try:
            for contest in CONTESTS:
                if contest.name in names:
                    found = with_measured(contest, sources, options)
                    print(report.table_of(found, contest), flush=True)
                    if not options.quick:
                        results.save(found)
        except OtherConditions as error:
            print(f"benchmarks.bench: --more: {error}", file=sys.stderr)
            return 2
        except WorkFailed as error:
            print(f"benchmarks.bench: {error}", file=sys.stderr)
            return 1
    if not options.quick:
        report.write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
