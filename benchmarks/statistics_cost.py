"""What statistics, the search for leakage, or both with drift add to a job: CPU seconds with and without, by pairs.

    python -m benchmarks.statistics_cost --schema covertype --input covtype.data --pairs 5
    python -m benchmarks.statistics_cost --of guards --schema covertype --input covtype.data --pairs 5

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

from benchmarks.scale import job
from schemas.dataset import layout
from schemas.dataset.manifest import read_manifest

OF = {
    "statistics": ("--no_statistics",),
    "leakage": ("--no_leakage",),
    "guards": ("--no_statistics", "--no_leakage"),  # drift is compared from the statistics
}
DRIFT = "\ndrift: 0.9\n"


def pairs(
    folder: Path, schema: str, inputs: Sequence[str], without: Sequence[str], count: int
) -> list[tuple[float, float]]:
    """Runs pairs of jobs. Returns the CPU seconds of each job, and of that with the flags `without`."""
    before, output, limited = folder / "before", folder / "out", folder / "schema.yaml"
    job(schema, inputs, str(before))
    declared = (before / read_manifest(str(before)).run / layout.SCHEMA_YAML).read_text(encoding="utf-8")
    limited.write_text(declared + DRIFT, encoding="utf-8")

    def cpu(*flags: str) -> float:
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(before, output)
        declares = schema if "--no_statistics" in flags else str(limited)  # with thresholds, it refuses that flag
        return job(declares, inputs, str(output), *flags)["cpu"]

    found = []
    for pair in range(count):
        seconds = {flags: cpu(*flags) for flags in (((), without) if pair % 2 else (without, ()))}
        found.append((seconds[()], seconds[without]))
        print(f"with {found[-1][0]:.2f} s, without {found[-1][1]:.2f} s", flush=True)
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--schema", required=True)
    parser.add_argument("--input", required=True, nargs="+")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--of", choices=(*OF,), default="statistics")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = pairs(Path(folder), options.schema, options.input, OF[options.of], options.pairs)
    ratios = [own / without for own, without in found]
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} ({1 - 1 / median:.1%} of the job), from {min(ratios):.3f} to {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
