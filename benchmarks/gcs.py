"""A job, and reading for training, on gs:// beside local disk, against a server on loopback.

    python -m benchmarks.gcs                              # needs make cloud-tools
    python -m benchmarks.gcs --rows 500000 --rounds 5 --latency 0.05
    python -m benchmarks.gcs --memory 400000 1200000      # peak memory of jobs of so many rows, and nothing else

Each figure is that of a process of its own. Local disk and bucket take turns, and the medians are printed. The server,
and the gateway through which all requests go, share the machine's cores with what is measured: CPU seconds are those of
the measured process alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import scale
from benchmarks.scale import repeat_lines
from schemas.dataset import open_dataset
from schemas.storage import folders, gcs
from tests.support import cloud as clouds
from tests.support.gateway_settings import Fault

Figures = dict[str, float]
ALWAYS = 10**9  # requests


def reading(data: str, *, epochs: int, cache_dir: str | None = None) -> Figures:
    """Reads the train split, in a process of its own, as a training does that does not keep it in memory."""
    cached = [] if cache_dir is None else ["--cache_dir", cache_dir]
    command = [sys.executable, "-m", "benchmarks.gcs", "--read", data, "--epochs", str(epochs), *cached]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    found: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=quiet).stdout)
    return found


def read(data: str, epochs: int, cache_dir: str | None) -> Figures:
    """What `reading` runs. The first batch ends the time that is not counted: imports and the graph."""
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import InputOptions

    began = time.perf_counter()
    dataset = open_dataset(data)
    if cache_dir is not None:
        from schemas.dataset.local_cache import LocalCache

        dataset = LocalCache(cache_dir).hold(dataset, ("train",)).dataset
    opened = time.perf_counter()
    batches = iter(input_fn(dataset, "train", mode="train", options=InputOptions(num_epochs=epochs, cache_bytes=0)))
    next(batches)
    begun, rows = time.perf_counter(), 0
    for _, labels in batches:
        rows += int(labels.shape[0])
    seconds = time.perf_counter() - begun
    figures = {"rows_per_second": rows / seconds, "opening": opened - began, "first_batch": begun - opened}
    return {**figures, "cpu": time.process_time()}


def compare(title: str, ways: Mapping[str, Callable[[], Figures]], rounds: int) -> None:
    """Measures the ways in turns, and prints their medians; the first is local disk."""
    found: dict[str, list[Figures]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, measure in ways.items():
            found[way].append(measure())
    medians = {way: {k: statistics.median(f[k] for f in all_) for k in all_[0]} for way, all_ in found.items()}
    base = next(iter(medians.values()))
    print(f"\n| {title} | rows/s | least to most | of local disk's | CPU s |\n|---|--:|--:|--:|--:|")
    for way, figures in medians.items():
        share = figures["rows_per_second"] / base["rows_per_second"]
        rates = [each["rows_per_second"] for each in found[way]]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        rate = f"{figures['rows_per_second']:,.0f}"
        print(f"| {way} | {rate} | {spread} | {share:.0%} | {figures['cpu']:.1f} |", flush=True)


def memory(sizes: Sequence[int], places: Mapping[str, str]) -> None:
    """Prints the peak memory of a job of each size, in each place."""
    for rows in sizes:
        for place, folder in places.items():
            repeat_lines(None, f"{places['local disk']}/rows.csv", rows)
            if place == "bucket":
                folders.upload(f"{places['local disk']}/rows.csv", f"{folder}/rows.csv")
            peak = scale.job("covertype", [f"{folder}/rows.csv"], f"{folder}/out", "--num_shards", "8")["peak_mb"]
            print(f"{rows:,} rows, {place}: {peak:,.0f} MB", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gcs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the job's input (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=5, help="passes that reading makes (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds added to each request, in a further line")
    parser.add_argument("--memory", type=int, nargs="+", metavar="ROWS", help="only print the peak memory of jobs")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--cache_dir", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.read:
        print(json.dumps(read(options.read, options.epochs, options.cache_dir)))
        return 0
    with tempfile.TemporaryDirectory() as folder, clouds.running_gcs(Path(folder)) as cloud:
        os.environ.update(cloud.environment)
        gcs.client.cache_clear()
        here, there = f"{folder}/work", cloud.new_bucket()
        Path(here).mkdir()
        if options.memory:
            memory(options.memory, {"local disk": here, "bucket": there})
            return 0
        size = repeat_lines(None, f"{here}/rows.csv", options.rows)
        folders.upload(f"{here}/rows.csv", f"{there}/rows.csv")
        print(f"{options.rows:,} rows, {size / 1e6:,.1f} MB; {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
        delay = Fault(".", times=ALWAYS, wait=options.latency)

        def delayed(measure: Callable[[], Figures]) -> Figures:
            cloud.inject(delay)
            try:
                return measure()
            finally:
                cloud.inject()

        def jobs(place: str) -> Figures:
            return scale.job("covertype", [f"{place}/rows.csv"], f"{place}/out")

        slow = f"bucket, {1000 * options.latency:g} ms a request"
        ways = {
            "local disk": lambda: jobs(here),
            "bucket": lambda: jobs(there),
            slow: lambda: delayed(lambda: jobs(there)),
        }
        compare("job", ways, options.rounds)

        def read_from(place: str, cache_dir: str | None = None) -> Figures:
            return reading(f"{place}/out", epochs=options.epochs, cache_dir=cache_dir)

        ways = {
            "local disk": lambda: read_from(here),
            "bucket": lambda: read_from(there),
            slow: lambda: delayed(lambda: read_from(there)),
            f"{slow}, --cache_dir": lambda: delayed(lambda: read_from(there, f"{folder}/cache")),
        }
        compare("reading for training", ways, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
