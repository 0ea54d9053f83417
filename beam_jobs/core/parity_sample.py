"""Which records are kept in `parity/`, raw and transformed: chosen by place, so that both sides choose alike."""

from __future__ import annotations

import numpy as np

from schemas.profile.hashing import place_hash

TARGET = 1000  # aimed at, since the number of rows is a guess when the choice is made
LIMIT = 512  # kept


def threshold(estimated_rows: int) -> int:
    """Records whose hash is at most this are kept: all of a small dataset, about `TARGET` of a large one."""
    return min(2**64 - 1, TARGET * (2**64 - 1) // max(estimated_rows, 1))


def choose(file: int | np.ndarray, offsets: np.ndarray, limit: int | None) -> np.ndarray:
    """The positions in `offsets` of the records to keep, int64; none without a limit."""
    if limit is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(place_hash(file, offsets) <= np.uint64(limit))
