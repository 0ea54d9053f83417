"""What the statistics of a dataset add to a job, or the search for leakage: CPU seconds with and without, by pairs.

    python -m benchmarks.statistics_cost --schema covertype --input covtype.data --pairs 5
    python -m benchmarks.statistics_cost --of leakage --schema covertype --input covtype.data --pairs 5

Each job runs in its own process, imports included. The two of a pair follow each other, in turns with one or the other
first, so that both see the machine alike. CPU time is compared, not wall time: another process would change that.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile

from benchmarks.scale import job


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
    parser.add_argument("--of", choices=("statistics", "leakage"), default="statistics")
    options = parser.parse_args(argv)
    without = f"--no_{options.of}"
    ratios = []
    for pair in range(options.pairs):
        flags = [(), (without,)]
        seconds = {f: cpu_of_job(options.schema, options.input, *f) for f in (flags if pair % 2 else reversed(flags))}
        ratios.append(seconds[()] / seconds[without,])
        told = f"with {seconds[()]:.2f} s, without {seconds[without,]:.2f} s"
        print(f"{told}: ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
