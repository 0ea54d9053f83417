"""Peak memory of each process, CPU time, and rows per second, of a job that Prism or several local workers run.

    python -m benchmarks.scale_workers --engine prism --rows 1000000 3000000 6000000
    python -m benchmarks.scale_workers --engine local --rows 1000000 3000000 --workers 1 2
    python -m benchmarks.scale_workers --engine shard --rows 1000000 6000000

Prism and its SDK worker are processes of their own. `make cloud-tools` builds Prism. Memory is the peak (VmHWM) of the
launcher, of the largest SDK worker, and of Prism. `shard` measures by itself what a worker does with a large group: it
writes one shard of so many rows, which it is handed piece by piece.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from benchmarks import machine
from benchmarks.scale import repeat_lines
from schemas.dataset.manifest import read_manifest
from tests.support import prism

ROOT = pathlib.Path(__file__).parent.parent
SECONDS = 3600.0  # a job that takes longer is ended


class Watched:
    """Notes the peak memory of a process, and of the largest of its descendants, while the `with` block runs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.own, self.below = pid, 0.0, 0.0
        self._cpu: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            below = list(descendants(self.pid))
            self.own = max(self.own, peak_mb(self.pid))
            self.below = max([self.below, *map(peak_mb, below)])
            for pid in (self.pid, *below):
                self._cpu[pid] = max(self._cpu.get(pid, 0.0), machine.cpu_seconds(pid))

    @property
    def cpu(self) -> float:
        """Seconds of CPU of the process and of its descendants, up to the last look at them."""
        return sum(self._cpu.values())


def peak_mb(pid: int | str) -> float:
    """The peak memory of a process so far; 0 if it has ended."""
    return (machine.peak_bytes(pid) or 0) / 2**20


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process started, directly or not."""
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from descendants(child)


def run(name: str, workers: int, source: str, folder: str) -> None:
    """Runs one job, and prints its figures."""
    output = os.path.join(folder, "out")
    options: tuple[str, ...] = ("--direct_num_workers", str(workers), "--direct_running_mode", "multi_processing")
    pids: tuple[int, ...] = ()
    with contextlib.ExitStack() as stack:
        if name == "prism":
            engine = stack.enter_context(prism.running(pathlib.Path(folder)))
            options, pids = ("--runner", "PortableRunner", *engine.beam_args), (engine.pool_pid, engine.pid)
        command = [sys.executable, "-m", "beam_jobs.preprocess", "--schema", "covertype", "--input", source]
        job = subprocess.Popen([*command, "--output", output, "--overwrite", "--quiet", *options], cwd=ROOT)
        launcher, *others = (stack.enter_context(Watched(pid)) for pid in (job.pid, *pids))
        try:
            status = job.wait(SECONDS)
        finally:
            job.kill()
        if status:
            raise SystemExit(f"{name}: the job ended with {status}")
    worker = others[0].below if others else launcher.below
    engine_peak = others[1].own if others else 0.0
    cpu = sum(watched.cpu for watched in (launcher, *others))
    manifest = read_manifest(output)
    print(
        f"{name:<7}{workers:>8}{manifest.read:>12,}{manifest.seconds:>10.1f}{cpu:>8.0f}"
        f"{manifest.read / manifest.seconds:>10,.0f}{launcher.own:>10,.0f}{worker:>10,.0f}{engine_peak:>10,.0f}",
        flush=True,
    )


def write_shard(rows: int) -> None:
    """Writes one shard of `rows` records of 200 bytes in this process, and prints the figures."""
    import numpy as np

    from beam_jobs.core.shuffle_plan import ShardOptions, ShufflePlan
    from beam_jobs.records import examples
    from beam_jobs.records.shards import WriteShards

    at_once = 1000
    frames = examples.framed([bytes(200)] * at_once)
    data, lengths = bytes(examples.joined(frames)), np.full(at_once, 216, np.int32).tobytes()
    with tempfile.TemporaryDirectory() as folder:
        options = ShardOptions(ShufflePlan((1, 0, 0), 0), (1, None, None), 1e18, "none", folder, None)
        pieces = ((lengths, bytes(bytearray(data))) for _ in range(rows // at_once))
        begun = time.monotonic()
        (shard,) = WriteShards(options).process((0, pieces))
        seconds = time.monotonic() - begun
    print(
        f"{'shard':<7}{1:>8}{shard.rows:>12,}{seconds:>10.1f}{time.process_time():>8.0f}"
        f"{shard.rows / seconds:>10,.0f}{0:>10}{peak_mb(os.getpid()):>10,.0f}{0:>10}",
        flush=True,
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_workers", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("prism", "local", "shard"), default="prism", help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 6_000_000], metavar="N")
    parser.add_argument("--workers", type=int, nargs="+", default=[1], metavar="N", help="of the local engine")
    parser.add_argument("--input", metavar="FILE", help="rows of UCI Covertype (default: as the other benchmarks)")
    parser.add_argument("--one_shard", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one_shard:
        write_shard(options.rows[0])
        return 0
    print(
        f"{'':<7}{'workers':>8}{'rows':>12}{'seconds':>10}{'CPU s':>8}{'rows/s':>10}"
        f"{'launcher':>10}{'worker':>10}{'Prism MB':>10}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "rows.csv")
        for rows in options.rows:
            if options.engine == "shard":
                command = [sys.executable, "-m", "benchmarks.scale_workers", "--one_shard", "--rows", str(rows)]
                subprocess.run(command, check=True)
                continue
            repeat_lines(options.input, source, rows)
            for workers in options.workers:
                run(options.engine, workers, source, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
