"""A random sample of a table's rows, in bounded memory: for what shows only in several columns together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

MAX_ROWS = 20_000
MAX_CELLS = 4_000_000
MAX_BYTES = 64 << 20


class RowSample:
    """Keeps the rows whose hash is below a bound, which is halved whenever they are too many.

    Attributes:
        hashes: uint64, of the rows that are kept, in the order of the file.
    """

    def __init__(self, width: int) -> None:
        self._most = max(200, min(MAX_ROWS, MAX_CELLS // width))
        self._parts: list[list[pa.BinaryArray]] = []
        self._halvings = 0
        self.hashes = np.empty(0, np.uint64)
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.hashes)

    def add(self, columns: Sequence[pa.BinaryArray], row_hashes: np.ndarray) -> None:
        """Adds a batch: binary `[n]` for each column, and the hashes of the rows, uint64 `[n]`."""
        below = np.flatnonzero(row_hashes < self._bound())
        for start in range(0, len(below), self._most):
            places = below[start : start + self._most]
            places = places[row_hashes[places] < self._bound()]
            taken = [column.take(pa.array(places)) for column in columns]
            self._parts.append(taken)
            self.hashes = np.concatenate([self.hashes, row_hashes[places]])
            self._bytes += sum(column.nbytes for column in taken)
            while len(self) > self._most or (self._bytes > MAX_BYTES and len(self) > 200):
                self._halve()

    def column(self, position: int) -> pa.BinaryArray:
        """One column's cells, binary `[n]`."""
        return pa.concat_arrays([part[position] for part in self._parts]) if self._parts else pa.array([], pa.binary())

    def _bound(self) -> np.uint64:
        return np.uint64((1 << 64) - 1 >> self._halvings)

    def _halve(self) -> None:
        self._halvings += 1
        keep = self.hashes < self._bound()
        whole = [pa.concat_arrays(list(parts)) for parts in zip(*self._parts, strict=True)]
        places = pa.array(np.flatnonzero(keep))
        self._parts = [[column.take(places) for column in whole]]
        self.hashes = self.hashes[keep]
        self._bytes = sum(column.nbytes for column in self._parts[0])
