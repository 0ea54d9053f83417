"""Which records are kept in `parity/`, raw and transformed: chosen by place, so that both sides choose alike."""

from __future__ import annotations

import numpy as np

TARGET = 1000  # aimed at, since the number of rows is a guess when the choice is made
LIMIT = 512  # kept
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def place_hash(file: int | np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A uint64 per record, from its input's key and its int64 offset (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = offsets.astype(np.uint64) * _MIX[0] + np.asarray(file + 1, np.uint64) * _MIX[1]
        x = (x ^ (x >> np.uint64(30))) * _MIX[1]
        x = (x ^ (x >> np.uint64(27))) * _MIX[2]
        return x ^ (x >> np.uint64(31))


def threshold(estimated_rows: int) -> int:
    """Records whose hash is at most this are kept: all of a small dataset, about `TARGET` of a large one."""
    return min(2**64 - 1, TARGET * (2**64 - 1) // max(estimated_rows, 1))


def choose(file: int | np.ndarray, offsets: np.ndarray, limit: int | None) -> np.ndarray:
    """The positions in `offsets` of the records to keep, int64; none without a limit."""
    if limit is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(place_hash(file, offsets) <= np.uint64(limit))
