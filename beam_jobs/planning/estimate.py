"""Runs the job on samples in processes of their own, measures it, and estimates the needs of the whole input.

Each need is a straight line through those of two samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.planning.sample import Sample
from schemas.concurrency import boosting_bytes, trees_a_round
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError
from schemas.spec.forms import Dense, Input
from schemas.spec.table import SPLITS, Schema
from schemas.storage.json_files import parse_json

_LOOK_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the job on a sample needed and wrote.

    Attributes:
      share: how much of the whole input the sample is, from 0 to 1.
      read, rejected: records.
      split_rows, split_bytes: of each split's shards.
      seconds: from the start of the process to its end.
      cpu_seconds: of all its threads.
      memory: the peak of its resident memory, in bytes.
      disk: the peak of what lay in its temporary folder and in its output, in bytes.
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


def measure(sample: Sample, flags: Sequence[str], folder: str) -> Measured:
    """Runs the job.

    Args:
      sample: its input.
      flags: further options of `beam_jobs.preprocess`.
      folder: a local folder for its output and its temporary files; it is removed afterwards.

    Raises:
      MillraceError: the job failed.
    """
    output, temporary = os.path.join(folder, "out"), os.path.join(folder, "tmp")
    os.makedirs(temporary)
    command = [sys.executable, "-m", "beam_jobs.preprocess", "--schema", sample.schema, "--input", *sample.input]
    # How much is rejected is told; whether the job would fail by it is not the sample's to say.
    command += ["--output", output, "--json", "--quiet", "--max_reject_fraction", "1", *flags]
    begun = time.monotonic()
    with open(os.path.join(folder, "printed"), "w+b") as printed:
        process = subprocess.Popen(  # noqa: S603 - this package's own command
            command, stdout=printed, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": temporary}
        )
        try:
            disk = 0
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                disk = max(disk, used(folder))
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        seconds = time.monotonic() - begun
        printed.seek(0)
        said = printed.read()
    if process.returncode:
        raise MillraceError(f"the job on a sample failed: {_error(said, sample)}")
    manifest = read_manifest(output)
    shutil.rmtree(folder)
    return Measured(
        share=sample.share,
        read=manifest.read,
        rejected=manifest.rejected,
        split_rows={name: split.rows for name, split in manifest.splits.items()},
        split_bytes={name: sum(s.bytes for s in split.shards) for name, split in manifest.splits.items()},
        seconds=seconds,
        cpu_seconds=ended[2].ru_utime + ended[2].ru_stime,
        memory=ended[2].ru_maxrss * 1024,
        disk=disk,
    )


def _error(said: bytes, sample: Sample) -> str:
    """What the job said, of the files that the sample was taken from; without files that are gone by then."""
    try:
        found: Any = parse_json(said)
        told = str(found["error"])
    except (ValueError, KeyError, TypeError):
        return "it ended without a result; run millrace preprocess on a part of the input to see why"
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

    Beside what is measured, `seconds` include the start, `memory` is the peak of the samples (it is bounded, and does
    not grow with the input), and `disk` is what is in use at once, with the dataset itself.

    Attributes:
      split_shards: by split.
      start: of `seconds`, what does not grow with the input.
    """

    split_shards: Mapping[str, int]
    start: float

    @property
    def bytes(self) -> int:
        """Of the dataset."""
        return sum(self.split_bytes.values())


def line(small: tuple[float, float], large: tuple[float, float]) -> tuple[float, float]:
    """The line through two points (share, need): the need at share 0, and at share 1.

    Where the larger sample did not need more, or needed more than in proportion, the line begins at 0 and goes through
    the larger one: a need is then rather estimated too high than too low, or as if there were no fixed part.
    """
    (x1, y1), (x2, y2) = small, large
    slope = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
    fixed = y2 - slope * x2
    return (fixed, fixed + slope) if slope > 0 and fixed >= 0 else (0.0, y2 / x2)


def needs(small: Measured, large: Measured, shards: Callable[[str, int], int]) -> Needs:
    """The needs of the whole input.

    Args:
      small, large: jobs on two samples; one that is the whole input is taken as it is.
      shards: from a split and the bytes of its examples to its shards.
    """

    def whole(name: str) -> tuple[float, float]:
        if large.share >= 1:
            return 0.0, getattr(large, name)
        return line((small.share, getattr(small, name)), (large.share, getattr(large, name)))

    def grown(counts: Mapping[str, int]) -> dict[str, int]:
        return {name: round(count / large.share) for name, count in counts.items()}

    start, seconds = whole("seconds")
    split_bytes = grown(large.split_bytes)
    return Needs(
        share=large.share,
        read=round(large.read / large.share),
        rejected=round(large.rejected / large.share),
        split_rows=grown(large.split_rows),
        split_bytes=split_bytes,
        split_shards={name: shards(name, size) for name, size in split_bytes.items()},
        seconds=seconds,
        cpu_seconds=whole("cpu_seconds")[1],
        memory=max(small.memory, large.memory),
        disk=round(whole("disk")[1]),
        start=start,
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
