"""Which records are kept in `parity/`, raw and transformed: rows by place, image files by a budget.

Rows are chosen by place, so that both sides choose alike. Files of photos are a thousand times a row, so they never
travel through the pipeline: they are written to the staging folder as they are read, and chosen when the job commits.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np

from schemas import storage
from schemas.dataset import layout
from schemas.profile.duplicates import place_hash

TARGET = 1000  # aimed at, since the number of rows is a guess when the choice is made
ROW_LIMIT = 512  # kept


def threshold(estimated_rows: int) -> int:
    """Records whose hash is at most this are kept: all of a small dataset, about `TARGET` of a large one."""
    return min(2**64 - 1, TARGET * (2**64 - 1) // max(estimated_rows, 1))


def choose_rows(file: int | np.ndarray, offsets: np.ndarray, limit: int | None) -> np.ndarray:
    """Returns the positions in `offsets` of the records to keep, int64; none without a limit."""
    if limit is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(place_hash(file, offsets) <= np.uint64(limit))


BUDGET = 32 << 20  # bytes of raw image files that are kept
RECORDS = 125  # aimed at, where the files are small


@dataclasses.dataclass(frozen=True)
class StagedCopy:
    """A copy of a raw file in the staging folder, and its size in bytes."""

    path: str
    size: int


@dataclasses.dataclass(frozen=True)
class ParityFiles:
    """An image that may become a parity record: its raw file, its label, and the path of what is stored."""

    rank: int
    raw: StagedCopy
    label: str
    stored: str

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ParityFiles:
        """Reads what `dataclasses.asdict` and JSON made of one."""
        return cls(**{**fields, "raw": StagedCopy(**fields["raw"])})


class FileKeeper:
    """Decides file by file which to keep, so that a job keeps little more than its budget with any number of workers.

    A file is kept where the hash of its place is small enough for RECORDS of all files, and for 1.5 times BUDGET of
    their bytes, going by the mean size so far; and where it is the smallest so far, so that there is one at least. Safe
    to use from several threads.

    Args:
      staging: where copies are written.
      records: how many files there are in all.
    """

    def __init__(self, staging: str, records: int) -> None:
        self._staging = staging
        self._share = 2**64 / max(records, 1)
        self._files = self._bytes = 0
        self._smallest = 2**64
        self._lock = threading.Lock()

    def keep(self, rank: int, data: bytes) -> StagedCopy | None:
        """Writes a copy of a file, if it is to be kept. `rank` is the hash of its place."""
        with self._lock:
            self._files += 1
            self._bytes += len(data)
            if rank > max(self._smallest, self._share * min(RECORDS, 1.5 * BUDGET * self._files / max(self._bytes, 1))):
                return None
            self._smallest = min(self._smallest, rank)
        return StagedCopy(write_staged(self._staging, data), len(data))


def write_staged(staging: str, data: bytes) -> str:
    """Writes a raw file or a stored record (a serialized tf.Example) under a name of its own, and returns its path."""
    path = layout.join(staging, f"parity-{uuid.uuid4().hex}")
    storage.write_bytes(path, data)
    return path


def choose(records: Iterable[ParityFiles], *, budget: int = BUDGET) -> list[ParityFiles]:
    """Returns the records to keep, by rank: as many as `budget` holds, and the first one at least."""
    ordered = sorted(records, key=lambda record: record.rank)
    ends = itertools.accumulate(record.raw.size for record in ordered)
    return [record for i, (record, end) in enumerate(zip(ordered, ends, strict=True)) if end <= budget or not i]
