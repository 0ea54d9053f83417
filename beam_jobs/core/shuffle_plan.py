"""The shuffle: records are assigned to random buckets, each bucket is permuted, and buckets are concatenated to shards.

Assigning every row to a uniformly drawn bucket, and then permuting each bucket uniformly, makes every order of a
split's rows equally likely (Rao 1961; Sanders 1998, "Random permutations on distributed, external and hierarchical
memory"). A bucket has to fit in memory. A shard consists of one or more buckets, so it may have any size.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from schemas import storage
from schemas.dataset import layout
from schemas.spec.table import SPLITS

BUCKET_BYTES = 24 << 20  # the target size
SMALL_BYTES = 512 << 10
MAX_BUCKETS = 8192
LEAST_TRAIN_SHARDS = 4  # if the size decides: readers interleave shards, and workers divide them


@dataclasses.dataclass(frozen=True)
class ShufflePlan:
    """The number of buckets of each split. Buckets are numbered consecutively, split by split."""

    buckets: tuple[int, ...]  # by split, in the order of SPLITS; 0 for a split that is not written
    seed: int
    small: bool = False  # whether buckets have so few records that encoding them one by one would take longer

    @property
    def total(self) -> int:
        return sum(self.buckets)

    def first(self, split: str) -> int:
        """Returns the index of the split's first bucket."""
        return sum(self.buckets[: SPLITS.index(split)])

    def split_of(self, bucket: int) -> str:
        """Returns the split that a bucket belongs to."""
        return SPLITS[int(np.searchsorted(np.cumsum(self.buckets), bucket, side="right"))]

    def draw(self, splits: np.ndarray, file: int, offset: int) -> np.ndarray:
        """Draws a bucket for each row, given the splits (int8) and the place of the first row (file, offset).

        The result depends on the batch's place alone, so a retried bundle gets the same buckets.
        """
        rng = np.random.default_rng([self.seed, storage.name_hash(file), offset])
        count = np.asarray(self.buckets)
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        return first[splits] + (rng.random(len(splits)) * count[splits]).astype(np.int64)


def plan_shuffle(
    shares: Mapping[str, float],
    *,
    estimated_bytes: int,
    num_shards: int | None,
    shard_bytes: float,
    seed: int,
    one_bucket_each: bool = False,
) -> ShufflePlan:
    """Plans enough buckets that each fits in memory, and that buckets add up to the requested shards.

    Args:
      shares: each split's fraction of the data.
      estimated_bytes: the approximate size of the dataset.
      num_shards: the number of train shards; None: determined by `shard_bytes`.
      shard_bytes: the target size of a shard.
      seed: of the random assignment.
      one_bucket_each: make a bucket for each shard, whatever its size.
    """
    buckets = []
    for split in SPLITS:
        size = estimated_bytes * shares.get(split, 0.0)
        in_memory = math.ceil(size / BUCKET_BYTES)
        if split not in shares:
            buckets.append(0)
        elif num_shards is None:
            least = LEAST_TRAIN_SHARDS if split == "train" else 1
            buckets.append(min(MAX_BUCKETS, max(in_memory, math.ceil(4 * size / shard_bytes), least)))
        else:
            shards = shards_of(split, shares[split] / shares["train"], num_shards)
            buckets.append(shards if one_bucket_each else shards * math.ceil(max(1, in_memory / shards)))
    return ShufflePlan(tuple(buckets), seed, small=estimated_bytes < SMALL_BYTES * sum(buckets))


def shards_of(split: str, share_of_train: float, num_shards: int) -> int:
    """Returns the number of shards: `--num_shards` for train, and the other splits in proportion, at least one."""
    return num_shards if split == "train" else max(1, round(num_shards * share_of_train))


def group_buckets(
    bucket_bytes: Sequence[int], *, num_shards: int | None, shard_bytes: float, least: int
) -> list[range]:
    """Groups consecutive buckets by shard: `num_shards` shards, or as many as `shard_bytes` requires."""
    if num_shards is None:
        num_shards = max(least, round(sum(bucket_bytes) / shard_bytes))
    num_shards = min(num_shards, len(bucket_bytes))
    bounds = [len(bucket_bytes) * i // num_shards for i in range(num_shards + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def bucket_order(buckets: np.ndarray) -> np.ndarray:
    """Returns the rows in the order of their buckets, and of the input within each: int64 `[rows]`."""
    narrow = buckets.astype(np.min_scalar_type(int(buckets.max(initial=0))))  # integers of 16 bits are sorted by radix
    return np.argsort(narrow, kind="stable")


def permutation(seed: int, bucket: int, rows: int) -> np.ndarray:
    """Returns the order in which a bucket's rows are written."""
    return np.random.default_rng([seed, 1 << 32, bucket]).permutation(rows)


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """How shards are cut and written."""

    plan: ShufflePlan
    num_shards: tuple[int | None, ...]  # by split, in the order of SPLITS; None: by `shard_bytes`
    shard_bytes: float
    compression: str
    staging: str
    fragments: str | None  # local folder for the shuffle through files; None: through the runner's
    spills: str | None = None  # shared folder for the records that are shuffled; None: the runner carries them itself

    def attempt(self, split: str, bucket: int, part: int) -> str:
        """Returns a path for a shard on a cluster: a name that it keeps, whichever attempt is committed.

        `part`: its number among the shards that a bucket was cut into.
        """
        run = os.path.dirname(self.staging)
        return layout.join(run, layout.attempt_name(split, bucket, part, self.compression))

    def group(self, split: int, bucket_bytes: list[int]) -> list[range]:
        """Returns the split's buckets by shard, counted from its first bucket."""
        least = LEAST_TRAIN_SHARDS if SPLITS[split] == "train" else 1
        return group_buckets(bucket_bytes, num_shards=self.num_shards[split], shard_bytes=self.shard_bytes, least=least)
