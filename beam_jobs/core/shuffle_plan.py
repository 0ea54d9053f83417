"""How rows come into random order: dealt at random to cells, each cell shuffled whole, cells joined to shards.

Dealing every row to a cell drawn uniformly, and then permuting each cell uniformly, makes every order of a split's rows
equally likely (Rao 1961; Sanders 1998, "Random permutations on distributed, external and hierarchical memory"). A cell
is the unit that has to fit in memory, so a shard may be of any size: it is one cell or more, one behind the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from schemas.spec.table import SPLITS

CELL_BYTES = 24 << 20  # aimed at
MAX_CELLS = 8192
LEAST_TRAIN_SHARDS = 4  # where the size decides: readers interleave shards, and workers share them out


@dataclasses.dataclass(frozen=True)
class Deal:
    """How many cells each split has. Cells are numbered through, split by split."""

    cells: tuple[int, ...]  # by split, in the order of SPLITS; 0 for a split that is not written
    seed: int

    @property
    def total(self) -> int:
        return sum(self.cells)

    def first(self, split: str) -> int:
        """The number of the split's first cell."""
        return sum(self.cells[: SPLITS.index(split)])

    def draw(self, splits: np.ndarray, file: int, offset: int) -> np.ndarray:
        """A cell for each row, given the rows' splits (int8) and the place of the first row.

        The draw is the same whenever the same batch is dealt again, so a bundle that is retried changes nothing.
        """
        rng = np.random.default_rng([self.seed, file, offset])
        count = np.asarray(self.cells)
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        return first[splits] + (rng.random(len(splits)) * count[splits]).astype(np.int64)


def plan_deal(
    shares: Mapping[str, float],
    *,
    estimated_bytes: int,
    num_shards: int | None,
    shard_bytes: float,
    seed: int,
    one_cell_each: bool = False,
) -> Deal:
    """Cells enough that one fits in memory and that whole cells make up shards of the wanted number or size.

    Args:
      shares: each split's share of the data.
      estimated_bytes: how large the dataset will be, more or less.
      num_shards: how many shards the train split gets; None: as many as `shard_bytes` makes.
      shard_bytes: the shards' size.
      seed: of the draws.
      one_cell_each: make every cell a shard, whatever its size.
    """
    cells = []
    for split in SPLITS:
        size = estimated_bytes * shares.get(split, 0.0)
        in_memory = math.ceil(size / CELL_BYTES)
        if split not in shares:
            cells.append(0)
        elif num_shards is None:
            least = LEAST_TRAIN_SHARDS if split == "train" else 1
            cells.append(min(MAX_CELLS, max(in_memory, math.ceil(4 * size / shard_bytes), least)))
        else:
            shards = shards_of(split, shares[split] / shares["train"], num_shards)
            cells.append(shards if one_cell_each else shards * math.ceil(max(1, in_memory / shards)))
    return Deal(tuple(cells), seed)


def shards_of(split: str, share_of_train: float, num_shards: int) -> int:
    """`--num_shards` for train, and the other splits in proportion, one at least."""
    return num_shards if split == "train" else max(1, round(num_shards * share_of_train))


def group_cells(cell_bytes: Sequence[int], *, num_shards: int | None, shard_bytes: float, least: int) -> list[range]:
    """Consecutive cells for each shard: as many shards as asked, or as many as the wanted size makes."""
    if num_shards is None:
        num_shards = max(least, round(sum(cell_bytes) / shard_bytes))
    num_shards = min(num_shards, len(cell_bytes))
    bounds = [len(cell_bytes) * i // num_shards for i in range(num_shards + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def in_cells(cells: np.ndarray) -> np.ndarray:
    """The rows in the order of their cells, and of the input within each: int64 `[rows]`."""
    narrow = cells.astype(np.min_scalar_type(int(cells.max(initial=0))))  # integers of 16 bits are sorted by radix
    return np.argsort(narrow, kind="stable")


def permutation(seed: int, cell: int, rows: int) -> np.ndarray:
    """The order in which a cell's rows are written."""
    return np.random.default_rng([seed, 1 << 32, cell]).permutation(rows)


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """How shards are cut and written."""

    deal: Deal
    num_shards: tuple[int | None, ...]  # by split, in the order of SPLITS; None: by size
    shard_bytes: float
    compression: str
    staging: str
    through_files: bool

    def group(self, split: int, cell_bytes: list[int]) -> list[range]:
        """The split's cells by shard, counted from its first cell."""
        least = LEAST_TRAIN_SHARDS if SPLITS[split] == "train" else 1
        return group_cells(cell_bytes, num_shards=self.num_shards[split], shard_bytes=self.shard_bytes, least=least)
