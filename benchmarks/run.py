"""Measures contests in turns, checks what the candidates write and read, and stores the figures.

    python -m benchmarks.run                            # all contests: writes figures, tables and plots
    python -m benchmarks.run --only photos read_rows    # a group, or single contests; other figures stay
    python -m benchmarks.run --small                    # a hundredth of the size, one round: only prints

In every round, all candidates of a contest take turns, so that other load affects all equally; figures are medians of
the rounds, and a training's seed is the number of its round. In the first round, the output of each candidate is read
back and checked. A candidate that fails is left out of further rounds and listed at the end, with exit status 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.contests import CONTESTS, Candidate, Contest
from benchmarks.inputs import REAL_DATA, MadeInput, MadeInputs
from benchmarks.measure import BenchmarkTask, Figures, WorkFailed, conditions, measure

SECONDS = 3.0  # that a reader is timed
BATCHES = {"rows": (512, 50_000), "photos": (64, 1000)}  # a reader's batch size and shuffle buffer


def compare(figures: Figures, source: MadeInput) -> None:
    """Compares the records that were read in one pass with the source.

    Raises:
      WorkFailed: the number of rows or the classes differ.
    """
    if figures.count != source.rows:
        raise WorkFailed(f"{figures.count:,} records, and the source holds {source.rows:,}")
    classes = {int(label): count for label, count in (figures.classes or {}).items()}
    if classes and source.classes and classes != source.classes:
        raise WorkFailed(f"classes {classes}, and the source has {source.classes}")


def run_candidate(contest: Contest, candidate: Candidate, sources: MadeInputs, *, seed: int, check: bool) -> Figures:
    """Measures a candidate once; if `check`, also checks what it writes or reads.

    Raises:
      WorkFailed: the process failed, or the records are not those of the source.
    """
    source = sources[candidate.source]
    batch_size, shuffle_buffer = BATCHES[contest.unit]
    task = BenchmarkTask(
        kind=contest.kind,
        function=candidate.function,
        options=candidate.options,
        source=source.path,
        table=source.table,
        rows=source.rows,
        batch_size=batch_size,
        shuffle_buffer=shuffle_buffer,
        seed=seed,
        max_steps=20 if sources.small else 0,
    )
    if contest.kind == "train":
        return measure(task)
    if contest.kind == "read":
        if check:
            compare(measure(task), source)
        return measure(dataclasses.replace(task, epochs=0, seconds=SECONDS / (10 if sources.small else 1)))
    output = tempfile.mkdtemp(dir=sources.folder)
    try:
        figures = measure(dataclasses.replace(task, output=output))
        if check and candidate.writes_records:
            reading = dataclasses.replace(task, kind="read", function="read_back:read", options={}, source=output)
            compare(measure(reading), source)
    finally:
        shutil.rmtree(output)
    return figures


def run_rounds(contest: Contest, sources: MadeInputs, rounds: int) -> tuple[dict[str, list[Figures]], dict[str, str]]:
    """Measures all candidates in each round, which begins with the next of them.

    Returns:
      The runs of each candidate that has any, and why candidates failed.
    """
    runs: dict[str, list[Figures]] = {candidate.name: [] for candidate in contest.candidates}
    failures: dict[str, str] = {}
    for i in range(rounds):
        turn = i % len(contest.candidates)
        for candidate in (*contest.candidates[turn:], *contest.candidates[:turn]):
            if candidate.name in failures:
                continue
            try:
                figures = run_candidate(contest, candidate, sources, seed=i + 1, check=i == 0)
            except Exception as error:  # any error: the other candidates are still measured
                failures[candidate.name] = str(error) or repr(error)
                print(f"{contest.name}, round {i + 1}: {candidate.name}: FAILED: {error}", flush=True)
                continue
            runs[candidate.name].append(figures)
            print(
                f"{contest.name}, round {i + 1} of {rounds}: {candidate.name}: {report.shown(figures.rate)} "
                f"{contest.unit}/s in {figures.seconds:.1f} s",
                flush=True,
            )
    return {name: figures for name, figures in runs.items() if figures}, failures


def parser() -> argparse.ArgumentParser:
    """Returns the command line's parser."""
    names = [contest.name for contest in CONTESTS]
    groups = list(dict.fromkeys(contest.group for contest in CONTESTS))
    p = argparse.ArgumentParser(prog="python -m benchmarks.run", description=(__doc__ or "").splitlines()[0])
    p.add_argument(
        "--only", nargs="+", choices=[*groups, *names], default=groups, metavar="CONTEST",
        help=f"groups: {', '.join(groups)}; contests: {', '.join(names)} (default: all)",
    )  # fmt: skip
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: %(default)s; with --small 1)")
    p.add_argument("--small", action="store_true", help="small inputs and one round; nothing is written")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    options = parser().parse_args(argv)
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        sources = MadeInputs(Path(folder), small=options.small)
        for contest in CONTESTS:
            if not {contest.name, contest.group} & {*options.only}:
                continue
            described = conditions(real_data=REAL_DATA in os.environ or contest.group == "models")
            runs, failed = run_rounds(contest, sources, 1 if options.small else options.rounds)
            failures += [f"{contest.name}: {name}: {cause}" for name, cause in failed.items()]
            before = report.Results() if options.small else report.load()
            measured = before.with_contest(contest, runs, described) if runs else before
            if not options.small:
                report.save(measured)
            print(report.table(measured, contest), flush=True)
    if not options.small:
        report.write(report.load())
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
