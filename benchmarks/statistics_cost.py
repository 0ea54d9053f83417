"""What statistics, the search for leakage, or both add to a job: CPU seconds with and without, by pairs.

    python -m benchmarks.statistics_cost --schema covertype --input covtype.data --pairs 5
    python -m benchmarks.statistics_cost --of guards --schema covertype --input covtype.data --pairs 5

Each job runs in its own process, imports included. The two of a pair follow each other, in turns with one or the other
first, so that both see the machine alike. CPU time is compared, not wall time: another process would change that.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile

from benchmarks.scale import job

OF = {
    "statistics": ("--no_statistics",),
    "leakage": ("--no_leakage",),
    "guards": ("--no_statistics", "--no_leakage"),  # drift is compared from the statistics
}


def cpu_of_job(schema: str, inputs: list[str], *flags: str) -> float:
    """Runs one job. Returns the CPU seconds of its process."""
    with tempfile.TemporaryDirectory() as folder:
        return job(schema, inputs, f"{folder}/out", *flags)["cpu"]


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statistics_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--schema", required=True)
    parser.add_argument("--input", required=True, nargs="+")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--of", choices=(*OF,), default="statistics")
    options = parser.parse_args(argv)
    without = OF[options.of]
    ratios = []
    for pair in range(options.pairs):
        flags = [(), without]
        seconds = {f: cpu_of_job(options.schema, options.input, *f) for f in (flags if pair % 2 else reversed(flags))}
        ratios.append(seconds[()] / seconds[without])
        told = f"with {seconds[()]:.2f} s, without {seconds[without]:.2f} s"
        print(f"{told}: ratio {ratios[-1]:.3f}", flush=True)
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} ({1 - 1 / median:.1%} of the job), from {min(ratios):.3f} to {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
