"""A few numbers of each row of an evaluation, in the order in which the split is read: for slices and worst rows."""

from __future__ import annotations

import numpy as np

MOST_ROWS = 1 << 21  # 2,097,152: of 20 bytes each, 42 MB


class KeptRows:
    """Numbers by row, of the first `most` rows of a split. The job has shuffled the split: they are a fair sample."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._parts: dict[str, list[np.ndarray]] = {}
        self.rows = 0  # that are kept

    def add(self, **values: np.ndarray) -> None:
        """Adds rows: arrays `[rows]` by name, the same names each time. Floats are kept as float32, others as int32."""
        room = self._most - self.rows
        if room <= 0:
            return
        for name, array in values.items():
            dtype = np.float32 if array.dtype.kind == "f" else np.int32
            self._parts.setdefault(name, []).append(array[:room].astype(dtype))
        self.rows += min(room, len(next(iter(values.values()))))

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of all rows that are kept, `[rows]`."""
        parts = self._parts.get(name, [])
        if len(parts) != 1:
            parts[:] = [np.concatenate(parts) if parts else np.zeros(0, np.float32)]
            self._parts[name] = parts
        return parts[0]

    def worst(self, limit: int) -> np.ndarray:
        """The places of the rows with the highest loss, highest first; rows without a finite loss are left out."""
        loss = self["loss"]
        finite = np.flatnonzero(np.isfinite(loss))
        if len(finite) > limit:
            finite = finite[np.argpartition(-loss[finite], limit)[:limit]]
        order: np.ndarray = finite[np.argsort(-loss[finite], kind="stable")]
        return order
