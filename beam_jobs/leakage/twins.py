"""Equal traces in two splits, or with two labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.leakage.traces import HASH, SPLIT
from schemas.spec.table import SPLITS

EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Shared:
    """What two splits share.

    Attributes:
      splits: the two, the one that comes first in `SPLITS` first.
      records: of the second one, how many have an equal one in the first.
      of: how many records of the second one were looked at.
      pairs: rows of the table, an example of the first split beside one of the second.
    """

    splits: tuple[str, str]
    records: int
    of: int
    pairs: tuple[tuple[int, int], ...]

    def told(self) -> dict[str, Any]:
        """As JSON values, without the pairs."""
        return {"splits": list(self.splits), "records": self.records, "of": self.of}


def shared(values: np.ndarray, splits: np.ndarray) -> list[Shared]:
    """Which values occur in two splits, for every two splits that share one.

    Args:
      values: uint64 `[n]`.
      splits: int8 `[n]`.
    """
    found = []
    for second in range(1, len(SPLITS)):
        theirs = np.flatnonzero(splits == second)
        for first in range(second):
            ours = np.flatnonzero(splits == first)
            both = np.flatnonzero(np.isin(values[theirs], values[ours]))
            if len(both):
                pairs = _pairs(values, ours, theirs[both])
                found.append(Shared((SPLITS[first], SPLITS[second]), len(both), len(theirs), pairs))
    return found


def _pairs(values: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Examples of equal values: those of the smallest ones, which are the same ones in any order."""
    smallest = np.unique(values[theirs])[:EXAMPLES]
    pairs = []
    for value in smallest:
        pairs.append((int(ours[values[ours] == value][0]), int(theirs[values[theirs] == value][0])))
    return tuple(pairs)


def repeated(values: np.ndarray) -> int:
    """How many values occurred before: what would go if each stayed once."""
    return len(values) - len(np.unique(values))


def with_two_labels(hashes: np.ndarray, labels: np.ndarray) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The values that occur with more than one label.

    Args:
      hashes: uint64 `[n]`.
      labels: int64 `[n]`.

    Returns:
      How many values these are, and examples: two places with one value and different labels.
    """
    order = np.lexsort((labels, hashes))
    value, label = hashes[order], labels[order]
    differ = np.flatnonzero((value[1:] == value[:-1]) & (label[1:] != label[:-1]))
    _, firsts = np.unique(value[differ], return_index=True)
    pairs = tuple((int(order[i]), int(order[i + 1])) for i in differ[firsts[:EXAMPLES]])
    return len(firsts), pairs


def ordered(table: pa.Table, *by: str) -> pa.Table:
    """A table in an order that depends on what it holds alone."""
    return table.sort_by([(name, "ascending") for name in (HASH, SPLIT, *by)])
