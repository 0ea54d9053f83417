"""From jobs on two samples to the whole input: each need is a straight line through the two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from beam_jobs.core.shuffle_plan import ShardOptions
from beam_jobs.planning.measure import Measured
from beam_jobs.planning.prices import Machine, Prices
from schemas.spec.table import SPLITS

# Assumptions about a cluster, since none was measured. Its cores may be slower, and gs:// and TLS cost CPU time, so the
# work takes from one to three times the CPU time that was measured here. Its machines take minutes to start.
SLOWER = (1.0, 3.0)
START_SECONDS = (120.0, 360.0)
SHUFFLE_OVERHEAD = 4  # bytes with each record
READS_PER_IMAGE = 2  # its size, and its bytes


@dataclasses.dataclass(frozen=True)
class Line:
    """fixed + slope x share of the input."""

    fixed: float
    slope: float

    @property
    def whole(self) -> float:
        """For the whole input."""
        return self.fixed + self.slope


def line(small: tuple[float, float], large: tuple[float, float]) -> Line:
    """The line through two points (share, need).

    Where the larger sample did not need more, or needed more than in proportion, the line begins at 0 and goes through
    the larger one: a need is then rather estimated too high than too low, or as if there were no fixed part.
    """
    (x1, y1), (x2, y2) = small, large
    slope = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
    fixed = y2 - slope * x2
    return Line(fixed, slope) if slope > 0 and fixed >= 0 else Line(0.0, y2 / x2)


@dataclasses.dataclass(frozen=True)
class Needs:
    """What the job on the whole input would read, write and need, about.

    Attributes:
      read, rejected: records.
      split_rows, split_bytes, split_shards: by split.
      seconds: on this machine, with what it takes to start.
      cpu_seconds: of all threads, here.
      memory: the peak of the samples, in bytes: it is bounded, and does not grow with the input.
      disk: what is in use at once, here, with the dataset itself, in bytes.
      start: of `seconds`, what does not grow with the input.
    """

    read: int
    rejected: int
    split_rows: Mapping[str, int]
    split_bytes: Mapping[str, int]
    split_shards: Mapping[str, int]
    seconds: float
    cpu_seconds: float
    memory: int
    disk: int
    start: float

    @property
    def bytes(self) -> int:
        """Of the dataset."""
        return sum(self.split_bytes.values())


def needs(small: Measured, large: Measured, shards: Callable[[str, int], int]) -> Needs:
    """The needs of the whole input.

    Args:
      small, large: jobs on two samples; one that is the whole input is taken as it is.
      shards: from a split and the bytes of its examples to its shards.
    """

    def whole(need: Callable[[Measured], float]) -> Line:
        if large.share >= 1:
            return Line(0.0, need(large))
        return line((small.share, need(small)), (large.share, need(large)))

    seconds = whole(lambda job: job.seconds)
    split_bytes = {name: round(size / large.share) for name, size in large.split_bytes.items()}
    return Needs(
        read=round(large.read / large.share),
        rejected=round(large.rejected / large.share),
        split_rows={name: round(rows / large.share) for name, rows in large.split_rows.items()},
        split_bytes=split_bytes,
        split_shards={name: shards(name, size) for name, size in split_bytes.items()},
        seconds=seconds.whole,
        cpu_seconds=whole(lambda job: job.cpu_seconds).whole,
        memory=max(small.memory, large.memory),
        disk=round(whole(lambda job: job.disk).whole),
        start=seconds.fixed,
    )


def shards_of(options: ShardOptions) -> Callable[[str, int], int]:
    """How many shards a job with these options would cut a split of so many bytes into."""

    def count(split: str, size: int) -> int:
        place = SPLITS.index(split)
        buckets = options.plan.buckets[place]
        return len(options.group(place, [size // max(buckets, 1)] * buckets))

    return count


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The job on some machines: seconds and cost, each from the least to the most."""

    workers: int
    seconds: tuple[float, float]
    cost: tuple[float, float]


def fleet(found: Needs, workers: int, kind: Machine, prices: Prices, *, images: bool) -> Fleet:
    """The job on `workers` machines of a kind, by the assumptions above. `images`: each record is a file of its own."""
    cores = workers * kind.vcpus
    both = (0, 1)
    seconds = [START_SECONDS[i] + SLOWER[i] * found.cpu_seconds / cores for i in both]
    shuffled = (found.bytes + SHUFFLE_OVERHEAD * (found.read - found.rejected)) / 1e9
    reads = found.read * READS_PER_IMAGE / 10_000 if images else 0.0
    cost = [
        workers * seconds[i] / 3600 * (kind.vcpus * prices.vcpu_hour[i] + kind.memory_gb * prices.memory_gb_hour[i])
        + shuffled * prices.shuffled_gb[i]
        + reads * prices.ten_thousand_reads[i]
        for i in both
    ]
    return Fleet(workers, (seconds[0], seconds[1]), (cost[0], cost[1]))
