"""How often each value of a column occurs: exactly while there are few, else of a random sample of the values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from schemas.inference.hashing import value_hashes

SAMPLED = (
    1024  # at least so many values are sampled, where there are more than can be kept; their number is then 3 % off
)
MAX_BYTES = 1 << 18  # of the values that are kept


class ValueCounts:
    """Counts values, in bounded memory.

    Up to `limit` distinct values are counted exactly. Beyond that the values whose hash is below a bound are, which is
    halved whenever there are too many: their counts are exact, and their share of all values is known (Wegman's
    adaptive sampling; Flajolet, "On adaptive sampling", 1990).
    """

    def __init__(self, limit: int, max_bytes: int = MAX_BYTES) -> None:
        self._limit, self._max_bytes = limit, max_bytes
        self._values: pa.BinaryArray | None = pa.array([], pa.binary())
        self._counts = np.empty(0, np.int64)
        self._hashes = np.empty(0, np.uint64)
        self._halvings = 0

    @property
    def exact(self) -> bool:
        """Whether all values are known."""
        return self._values is not None

    @property
    def distinct(self) -> int:
        """The number of distinct values, or an estimate of it."""
        return len(self._counts) << self._halvings

    @property
    def once(self) -> float:
        """The share of the distinct values that occur only once."""
        return float((self._counts == 1).mean()) if len(self._counts) else 0.0

    @property
    def counts(self) -> np.ndarray:
        """int64: of the known values, or of the sample."""
        return self._counts

    def ranked(self) -> list[tuple[bytes, int]]:
        """The values with their counts, the most frequent first; none if not all are known."""
        if self._values is None:
            return []
        pairs = zip(self._values.to_pylist(), self._counts.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def add(self, values: pa.BinaryArray, counts: np.ndarray) -> None:
        """Adds distinct values, binary `[n]`, with their counts, int64 `[n]`."""
        if not len(values):
            return
        if self._values is not None:
            merged = pa.concat_arrays([self._values, values]).dictionary_encode()
            total = np.zeros(len(merged.dictionary), np.int64)
            np.add.at(total, merged.indices.to_numpy(), np.concatenate([self._counts, counts]))
            self._values, self._counts = merged.dictionary, total
            if len(total) > self._limit or self._values.nbytes > self._max_bytes:
                self._hashes, self._values = value_hashes(self._values), None
                self._thin()
            return
        hashes = value_hashes(values)
        below = hashes < self._bound()
        if not below.any():
            return
        joined, places = np.unique(np.concatenate([self._hashes, hashes[below]]), return_inverse=True)
        total = np.zeros(len(joined), np.int64)
        np.add.at(total, places, np.concatenate([self._counts, counts[below]]))
        self._hashes, self._counts = joined, total
        self._thin()

    def _bound(self) -> np.uint64:
        return np.uint64((1 << 64) - 1 >> self._halvings)

    def _thin(self) -> None:
        while len(self._counts) > max(self._limit, SAMPLED):
            self._halvings += 1
            keep = self._hashes < self._bound()
            self._hashes, self._counts = self._hashes[keep], self._counts[keep]
