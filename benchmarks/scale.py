"""Rows per second and peak memory of a job, by the size of its input and its number of shards.

    python -m benchmarks.scale --keep --rounds 3
    python -m benchmarks.scale --input covtype.data --rows 600000 6000000 --shards 1 512

The input's lines are repeated until there are enough. Each job runs in its own process. Its memory is its peak, imports
included; its time is that of its pipeline, as in the manifest.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence

from benchmarks import report, results, sources
from benchmarks.wide import run
from schemas.dataset.manifest import read_manifest


def repeat_lines(source: str | None, target: str, rows: int) -> int:
    """Writes `rows` lines, repeating those of `source` (None: the benchmarks' input). Returns the bytes."""
    if source is None:
        lines = sources.lines("covertype")[1]
    else:
        with (gzip.open if source.endswith(".gz") else open)(source, "rb") as file:
            lines = itertools.cycle(file.read().splitlines(keepends=True))
    with open(target, "wb") as out:
        out.writelines(itertools.islice(lines, rows))
    return os.path.getsize(target)


def job(schema: str, inputs: Sequence[str], output: str, *flags: str) -> dict[str, float]:
    """Runs one job in a process of its own.

    Returns:
      Its rows per second and its seconds, of its pipeline and commit, as in the manifest; and of its process the CPU
      seconds and the peak memory in megabytes.
    """
    options = ["--schema", schema, "--input", *inputs, "--output", output, "--quiet", "--overwrite", *flags]
    taken = run("beam_jobs.preprocess", *options)
    manifest = read_manifest(output)
    rate = manifest.read / manifest.seconds
    return {**taken, "rows_per_second": rate, "seconds": manifest.seconds}


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--input", metavar="FILE", help="rows of UCI Covertype, gzip'd or not (default: as the other benchmarks)"
    )
    parser.add_argument("--schema", default="schemas/covertype.yaml", metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 6_000_000], metavar="N")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 512], metavar="N")
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="shows medians of N rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write benchmarks/scale.json, and update its table and plot"
    )
    options = parser.parse_args(argv)
    real = options.input is not None or sources.real_file("covertype") is not None
    conditions = results.conditions(real_data=real) if options.keep else {}
    figures = []
    print(f"{'rows':>10} {'shards':>7} {'seconds':>8} {'rows/s':>9} {'peak MB':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "rows.csv"), os.path.join(folder, "out")
        for rows in options.rows:
            repeat_lines(options.input, source, rows)
            turns = [
                {n: job(options.schema, [source], output, "--num_shards", str(n)) for n in options.shards}
                for _ in range(options.rounds)
            ]
            for shards in options.shards:
                runs = [turn[shards] for turn in turns]
                found = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                figures.append({"rows": rows, "shards": shards, "runs": len(runs), **found})
                print(
                    f"{rows:>10,} {shards:>7} {found['seconds']:>8.1f} {found['rows_per_second']:>9,.0f} "
                    f"{found['peak_mb']:>8,.0f}",
                    flush=True,
                )
    if options.keep:
        report.keep(report.SCALE, conditions, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
