"""What statistics, the search for leakage, or both with drift add to a job: CPU seconds with and without, by pairs.

    python -m benchmarks.statistics_cost --schema covertype --input covtype.data --pairs 5
    python -m benchmarks.statistics_cost --of guards --schema covertype --input covtype.data --pairs 5
    python -m benchmarks.statistics_cost --keep    # of guards, on the inputs of the other benchmarks

Each job replaces a dataset of the same records, in a process of its own, imports included. A job with statistics is
also compared with that dataset, and has a threshold of drift for each feature. The two of a pair follow each other, in
turns with one or the other first, so that both see the machine alike. CPU time is compared, not wall time: another
process would change that.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report, results
from benchmarks.scale import job
from benchmarks.sources import FULL, Sources
from schemas.dataset import layout
from schemas.dataset.manifest import read_manifest

OF = {
    "statistics": ("--no_statistics",),
    "leakage": ("--no_leakage",),
    "guards": ("--no_statistics", "--no_leakage"),  # drift is compared from the statistics
}
DRIFT = "\ndrift: 0.9\n"


Pair = dict[str, dict[str, float]]  # "with" and "without": the `seconds` and the `cpu` of a job


def pairs(schema: str, inputs: Sequence[str], without: Sequence[str], count: int) -> list[Pair]:
    """Runs pairs of jobs: one as it is, and one with the flags `without`."""
    found = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        before, output, limited = folder / "before", folder / "out", folder / "schema.yaml"
        job(schema, inputs, str(before))
        declared = (before / read_manifest(str(before)).run / layout.SCHEMA_YAML).read_text(encoding="utf-8")
        limited.write_text(declared + DRIFT, encoding="utf-8")

        def run(*flags: str) -> dict[str, float]:
            shutil.rmtree(output, ignore_errors=True)
            shutil.copytree(before, output)
            declares = schema if "--no_statistics" in flags else str(limited)  # with thresholds, it refuses that flag
            return job(declares, inputs, str(output), *flags)

        for turn in range(count):
            ways = {"with": (), "without": without}
            found.append({way: run(*ways[way]) for way in sorted(ways, reverse=bool(turn % 2))})
            print(", ".join(f"{way} {found[-1][way]['cpu']:.2f} s" for way in ways), flush=True)
    return found


def keep(count: int) -> None:
    """Measures all goals, and stores the pairs by the name of their source."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(folder, FULL)
        made = {name: sources[name] for name in report.GUARDED}
        conditions = results.conditions(real_data=all(source.real for source in made.values()))
        for name, source in made.items():
            print(name, flush=True)
            schema = str(Path(source.path).with_suffix(".yaml"))
            figures[name] = pairs(schema, [source.path], OF["guards"], count)
    report.keep(report.GUARDS, conditions, figures)


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--schema")
    parser.add_argument("--input", nargs="+")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--of", choices=(*OF,), default="statistics")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/guards.json, and update the goals")
    options = parser.parse_args(argv)
    if options.keep:
        keep(options.pairs)
        return 0
    if not (options.schema and options.input):
        parser.error("--schema and --input, or --keep, are required")
    found = pairs(options.schema, options.input, OF[options.of], options.pairs)
    ratios = [pair["with"]["cpu"] / pair["without"]["cpu"] for pair in found]
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} ({1 - 1 / median:.1%} of the job), from {min(ratios):.3f} to {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
