"""Runs the job on a sample in a process of its own, and measures what it needs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from beam_jobs.planning.sample import Sample
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError
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
        return "it ended without a result; run beam_jobs.preprocess on a part of the input to see why"
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
