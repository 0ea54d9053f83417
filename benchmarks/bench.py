"""Compares this project with its alternatives in one run.

    make bench                             # everything; writes results, tables and plots
    python -m benchmarks.bench --quick     # small inputs, a few minutes; only prints

Each measurement runs in its own process. In every round, all ways of a contest take turns, so that other load affects
all equally; figures are medians of the rounds. In the first round, the output of each way is read back and checked. A
way that fails is left out of further rounds and listed at the end; the others continue, and the exit status is 1. With
MILLRACE_TEST_DATA the inputs are the real files, otherwise samples of the same shape.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time

from benchmarks import machine, report, results
from benchmarks.contests import CONTESTS, Contest
from benchmarks.rounds import Failure, prepare, run_rounds
from benchmarks.sources import FULL, QUICK, REAL_DATA, Sources


class OtherConditions(ValueError):
    """Rounds cannot be added to figures of another machine, other versions or other inputs."""


def with_measured(
    contest: Contest, sources: Sources, options: argparse.Namespace
) -> tuple[results.Results, list[Failure]]:
    """The stored results with this contest measured again, or with more rounds of it; and the ways that failed.

    Raises:
      OtherConditions: the rounds cannot be added.
    """
    load = os.getloadavg()[0]
    entries, failures = prepare(contest, sources)
    conditions = machine.describe(real_data=all(sources[entry.source].real for entry in entries))
    kept = results.load().contests.get(contest.name)
    if options.more and kept and not machine.alike(kept["machine"], conditions):
        raise OtherConditions(
            f"the rounds of {contest.name} that are kept are of another machine, other versions or other inputs "
            f"({REAL_DATA}); measure it anew, without --more"
        )
    runs, failed = run_rounds(contest, entries, sources, options)
    found = results.Results() if options.quick else results.load()  # another run may have changed them
    if runs:
        found = found.with_contest(contest, runs, conditions, load=load, more=options.more)
    return found, [*failures, *failed]


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
    """Runs the command. Returns the exit status."""
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
    wanted = [contest for contest in CONTESTS if contest.name in names]
    failures: list[Failure] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        options.work = folder
        sources = Sources(folder, options.size, under=options.under)
        for i, contest in enumerate(wanted, 1):
            print(
                f"contest {i} of {len(wanted)}, {(time.monotonic() - begun) / 60:.0f} min after the start: "
                f"{contest.name}, {len(contest.entries)} ways, rounds: {options.rounds}",
                flush=True,
            )
            try:
                found, failed = with_measured(contest, sources, options)
            except OtherConditions as error:
                print(f"benchmarks.bench: --more: {error}", file=sys.stderr)
                return 2
            failures += failed
            if not options.quick:
                results.save(found)
            print(report.table_of(found, contest), flush=True)
    if not options.quick:
        report.write(results.load())
    if failures:
        print(f"benchmarks.bench: failed ({len(failures)}):", file=sys.stderr)
        print(*failures, sep="\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
