"""What a cluster job costs before its first record, by the number of input files: proto, launcher memory, time.

    python -m benchmarks.scale_plan
    python -m benchmarks.scale_plan --files 1000 1000000 --terabytes 10

Each job runs in its own process up to the point where its pipeline would be submitted. The input is simulated: a store
that lists any number of names, and serves the same few rows for each of them. All else is a job's own: it lists, opens
a sample, stages the inputs in files, and builds the pipeline of a cluster. `commit` checks the counts that the pipeline
of so many files would have written (`list s`), and writes the files of inputs that the manifest names (`stage s`).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO
from unittest import mock

from benchmarks.machine import peak_bytes
from schemas.storage import FileStat

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.options import JobOptions

KINDS = {"csv": ("covertype", "many://bucket/*.csv"), "images": ("cats_dogs", "many://bucket/*/*")}
ROWS = b"3493,16,14,660,145,4313,207,209,137,3453,1,0,0,0" + b",0" * 40 + b",7\n"


class ManyFiles:
    """A store that only lists files and opens them for reading."""

    def __init__(self, files: int, size: int, kind: str) -> None:
        self._files, self._size, self._kind = files, size, kind

    def explain(self, error: Exception) -> str | None:
        return None

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        for i in range(self._files):
            name = f"part-{i:07d}.csv" if self._kind == "csv" else f"{('cat', 'dog')[i % 2]}/photo-{i:08d}.jpg"
            path = f"many://bucket/{name}"
            yield path, self.stat(path), path

    def stat(self, path: str) -> FileStat:
        return FileStat(self._size, "1700000000000000")

    def open(self, path: str, version: str | None) -> BinaryIO:
        return io.BytesIO(ROWS * 100)


class Submitted(Exception):
    """The pipeline is complete, and would be submitted now."""

    def __init__(self, proto_bytes: int, staged_bytes: int) -> None:
        super().__init__(proto_bytes)
        self.proto_bytes, self.staged_bytes = proto_bytes, staged_bytes


def plan(kind: str, files: int, total: int, folder: str) -> None:
    """Runs a job until its pipeline is built, and prints the figures."""
    from beam_jobs.core.options import JobOptions
    from beam_jobs.runs import job

    schema, pattern = KINDS[kind]
    store: Any = ManyFiles(files, total // files, kind)
    with mock.patch.dict("schemas.storage.paths._STORES", {"many://": store}):
        output, staging = os.path.join(folder, "out"), os.path.join(folder, "staged")
        os.mkdir(staging)
        options = JobOptions(schema=schema, input=(pattern,), output=output, runner="PrismRunner", quiet=True)
        begun = time.monotonic()
        source = job.check_inputs(options)
        listed, peak_listed = time.monotonic() - begun, peak_mb()
        source.stage(staging)
        staged, peak_staged = time.monotonic() - begun - listed, peak_mb()
        try:
            with mock.patch("beam_jobs.engines.runner.run", submit):
                job.run_job(options)
        except Submitted as submitted:
            proto, staged_bytes = submitted.proto_bytes, submitted.staged_bytes
    print(
        f"{kind:<7}{files:>10,}{proto:>13,}{listed:>9.1f}{staged:>9.1f}{peak_listed:>11,.0f}{peak_staged:>11,.0f}"
        f"{peak_mb():>11,.0f}{staged_bytes / files:>11.1f}",
        flush=True,
    )


def finish(files: int, total: int, folder: str) -> None:
    """Does what a launcher does with the counts of a finished pipeline, and prints the figures."""
    from beam_jobs.core.accounting import COVERED, DESCRIBED, READ, WRITTEN
    from beam_jobs.core.inputs import InputFile, stage_inputs
    from beam_jobs.records.accounts import accounts, input_part, write_counts
    from schemas.dataset.manifest import write_parts
    from schemas.storage import Listing

    size = total // files
    found = ((path, stat) for path, stat, _ in ManyFiles(files, size, "csv").scan(""))
    listed = (InputFile(f.key, f.path, f.size, f.version, f.size) for f in Listing(found))
    staged = stage_inputs(folder, listed, count=files)
    description = json.dumps(["utf-8", [f"column {i}" for i in range(55)]])
    one = ((COVERED, "", size), (READ, "", 100), (WRITTEN, "train", 80), (WRITTEN, "eval", 10), (WRITTEN, "test", 10))
    counted = [
        write_counts(
            (part, ((str(f.key), *count) for f in staged.read(part) for count in (*one, (DESCRIBED, description, 1)))),
            folder,
        )
        for part in range(staged.parts)
    ]
    begun, before = time.monotonic(), peak_mb()
    for part in accounts(staged, counted):
        for account in part:
            account.check()
    checked = time.monotonic() - begun
    write_parts(folder, "run", map(input_part, accounts(staged, counted)), count=files)
    seconds = time.monotonic() - begun - checked
    written_bytes = sum(path.stat().st_size for path in pathlib.Path(folder, "run").glob("*"))
    print(
        f"{'commit':<7}{files:>10,}{'':>13}{checked:>9.1f}{seconds:>9.1f}{before:>11,.0f}{peak_mb():>11,.0f}{'':>11}"
        f"{written_bytes / files:>11.1f}",
        flush=True,
    )


def submit(options: JobOptions, build: Callable[[beam.Pipeline], None], **_: object) -> None:
    """Builds the pipeline, and measures it, and the files that describe the input, instead of running it."""
    import apache_beam as beam

    pipeline = beam.Pipeline()
    build(pipeline)
    staged = pathlib.Path(options.output).glob("*/staging/*.json*")
    raise Submitted(len(pipeline.to_runner_api().SerializeToString()), sum(path.stat().st_size for path in staged))


def peak_mb() -> float:
    """The peak memory of this process so far."""
    return (peak_bytes() or 0) / 2**20


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_plan", description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, "commit"], choices=[*KINDS, "commit"])
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000], metavar="N")
    parser.add_argument(
        "--terabytes", type=float, default=10.0, metavar="TB", help="of all files (default: %(default)g)"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    total = int(options.terabytes * 1e12)
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            if options.kinds[0] == "commit":
                finish(options.files[0], total, folder)
            else:
                plan(options.kinds[0], options.files[0], total, folder)
        return 0
    print(
        f"{'':<7}{'files':>10}{'proto bytes':>13}{'list s':>9}{'stage s':>9}{'MB, list':>11}{'MB, stage':>11}"
        f"{'MB, whole':>11}{'bytes/file':>11}",
        flush=True,
    )
    for kind in options.kinds:
        for files in options.files:
            command = [sys.executable, "-m", "benchmarks.scale_plan", "--one", "--kinds", kind]
            command += ["--files", str(files), "--terabytes", str(options.terabytes)]
            subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
