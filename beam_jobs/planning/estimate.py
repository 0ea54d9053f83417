"""Runs the job on samples in this process, measures it, and estimates the needs of the whole input.

Each need is a straight line through those of two samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from beam_jobs.core.options import JobOptions
from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.planning.sample import Sample
from beam_jobs.runs.job import run_job
from schemas.concurrency import boosting_bytes, trees_a_round
from schemas.errors import MillraceError
from schemas.spec.forms import Dense, Input
from schemas.spec.table import SPLITS, Schema

_LOOK_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the job on a sample needed and wrote.

    Attributes:
      share: how much of the whole input the sample is, from 0 to 1.
      read, rejected: records.
      split_rows, split_bytes: of each split's shards.
      seconds: from its start to its end, without the libraries' import.
      cpu_seconds: of all its threads.
      memory: the peak of the process's resident memory, in bytes.
      disk: the peak of what lay in its output, its temporary files among it, in bytes.
    """

    share: float
    read: int
    rejected: int
    split_rows: Mapping[str, int]
    split_bytes: Mapping[str, int]
    seconds: float
    cpu_seconds: float
    memory: int
    disk: int


def measure(sample: Sample, options: JobOptions, folder: str) -> Measured:
    """Runs the job in this process, in which the libraries are loaded.

    Args:
      sample: its input.
      options: the job's, but for its input and output.
      folder: a local folder for its output and its temporary files; it is removed afterwards.

    Raises:
      MillraceError: the job failed.
    """
    job = dataclasses.replace(
        options,
        schema=sample.schema,
        input=tuple(sample.input),
        output=folder,
        max_reject_fraction=1.0,  # how much is rejected is told; whether the job would fail by it is not for the sample
        quiet=True,
    )
    began, cpu = time.monotonic(), cpu_seconds()
    with _watched(folder) as disk:
        try:
            manifest = run_job(job, report=lambda notes: None)
        except MillraceError as error:
            raise MillraceError(f"the job on a sample failed: {_error(str(error), sample)}") from error
    seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    shutil.rmtree(folder)
    return Measured(
        share=sample.share,
        read=manifest.read,
        rejected=manifest.rejected,
        split_rows={name: split.rows for name, split in manifest.splits.items()},
        split_bytes={name: sum(s.bytes for s in split.shards) for name, split in manifest.splits.items()},
        seconds=seconds,
        cpu_seconds=cpu,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        disk=max(disk),
    )


def cpu_seconds() -> float:
    """The CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


@contextlib.contextmanager
def _watched(folder: str) -> Iterator[list[int]]:
    """How many bytes a folder has had while the block ran, looked at now and then and at its end."""
    found, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            found.append(used(folder))

    thread = threading.Thread(target=look, name="disk", daemon=True)
    thread.start()
    try:
        yield found
        found.append(used(folder))
    finally:
        ended.set()
        thread.join()


def _error(told: str, sample: Sample) -> str:
    """What the job said, of the files that the sample was taken from; without files that are gone by then."""
    for copy, whole in sample.input.items():
        told = told.replace(copy, whole)
    return "\n".join(line for line in told.splitlines() if "/failed/" not in line)


def used(folder: str) -> int:
    """How many bytes the files under a folder have, as far as they are still there."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


@dataclasses.dataclass(frozen=True)
class Needs(Measured):
    """About what the job on the whole input would read, write and need.

    Beside what is measured, `seconds` and `cpu_seconds` include the libraries' import, `memory` is the peak of the
    samples (it is bounded, and does not grow with the input), and `disk` is what is in use at once, with the dataset.

    Attributes:
      split_shards: by split.
      start: of `seconds`, what does not grow with the input.
      seconds_between: the same, if the larger job had taken less or more by a share of `NOISE`.
    """

    split_shards: Mapping[str, int]
    start: float
    seconds_between: tuple[float, float]

    @property
    def bytes(self) -> int:
        """Of the dataset."""
        return sum(self.split_bytes.values())


NOISE = 0.1  # of a job's time, from one time to the next


def line(small: tuple[float, float], large: tuple[float, float]) -> tuple[float, float]:
    """The line through two points (share, need): the need at share 0, and at share 1.

    Where the larger sample did not need more, or needed more than in proportion, the line begins at 0 and goes through
    the larger one: a need is then rather estimated too high than too low, or as if there were no fixed part.
    """
    (x1, y1), (x2, y2) = small, large
    slope = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
    fixed = y2 - slope * x2
    return (fixed, fixed + slope) if slope > 0 and fixed >= 0 else (0.0, y2 / x2)


def needs(
    small: Measured,
    large: Measured,
    shards: Callable[[str, int], int],
    *,
    loading: tuple[float, float] = (0.0, 0.0),
) -> Needs:
    """The needs of the whole input.

    Args:
      small, large: jobs on two samples; one that is the whole input is taken as it is.
      shards: from a split and the bytes of its examples to its shards.
      loading: the seconds, and the CPU seconds, that it took to import the libraries.
    """

    def whole(name: str, noise: float = 0.0) -> tuple[float, float]:
        larger = (1 + noise) * getattr(large, name)
        if large.share >= 1:
            return 0.0, larger
        return line((small.share, getattr(small, name)), (large.share, larger))

    def grown(counts: Mapping[str, int]) -> dict[str, int]:
        return {name: round(count / large.share) for name, count in counts.items()}

    start, seconds = whole("seconds")
    between = [whole("seconds", noise)[1] for noise in (-NOISE, 0.0, NOISE)]  # in any order: see `line`
    split_bytes = grown(large.split_bytes)
    return Needs(
        share=large.share,
        read=round(large.read / large.share),
        rejected=round(large.rejected / large.share),
        split_rows=grown(large.split_rows),
        split_bytes=split_bytes,
        split_shards={name: shards(name, size) for name, size in split_bytes.items()},
        seconds=loading[0] + seconds,
        cpu_seconds=loading[1] + whole("cpu_seconds")[1],
        memory=max(small.memory, large.memory),
        disk=round(whole("disk")[1]),
        start=loading[0] + start,
        seconds_between=(loading[0] + min(between), loading[0] + max(between)),
    )


LISTED = 64  # ids of a text or a bag of which trees read how often each occurs, by default


def boosting_memory(schema: Schema, split_rows: Mapping[str, int]) -> int:
    """About how many bytes it takes to train `boosted_trees` on the dataset, whose train and eval splits are held."""
    inputs = [entry for feature in schema.inputs for entry in feature.inputs(LISTED)]
    columns = sum(map(_columns, inputs)) or len(inputs)
    values = getattr(schema.label, "values", None)
    rows = split_rows.get("train", 0) + split_rows.get("eval", 0)
    return boosting_bytes(rows, columns, trees=trees_a_round(values and len(values)))


def _columns(entry: Input) -> int:
    """Of the table that trees are grown on: a text or a bag has one for each of its first ids, and a cross none."""
    if isinstance(entry, Dense):
        return entry.width
    if entry.crossed:
        return 0
    return (entry.length or 1) if entry.length == 1 or entry.positional else LISTED


def shards_of(options: ShardOptions) -> Callable[[str, int], int]:
    """How many shards a job with these options would cut a split of so many bytes into."""

    def count(split: str, size: int) -> int:
        place = SPLITS.index(split)
        buckets = options.plan.buckets[place]
        return len(options.group(place, [size // max(buckets, 1)] * buckets))

    return count
