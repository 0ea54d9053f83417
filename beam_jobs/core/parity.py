"""Which records are kept in `parity/`, raw and transformed: rows by place, image files by a budget.

Rows are chosen by place, so that both sides choose alike. Files of photos are a thousand times a row, so they never
travel through the pipeline: they are written to the staging folder as they are read, and chosen when the job commits.
"""

from __future__ import annotations

import dataclasses
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
    """The positions in `offsets` of the records to keep, int64; none without a limit."""
    if limit is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(place_hash(file, offsets) <= np.uint64(limit))


BUDGET = 32 << 20  # bytes of raw files that are kept
LIMIT = 64 << 20  # with those that are kept because no other one goes through some part of the decoder
RECORDS = 125  # aimed at, where the files are small


@dataclasses.dataclass(frozen=True)
class KeptFile:
    """A copy of a raw file in the staging folder. `branches` are the parts of the decoder that it goes through."""

    path: str
    size: int
    branches: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ParityFiles:
    """An image that may become a parity record: its raw file, its label, and the path of what is stored."""

    rank: int
    raw: KeptFile
    label: str
    stored: str

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ParityFiles:
        """The inverse of `dataclasses.asdict`, through JSON."""
        raw = KeptFile(**{**fields["raw"], "branches": tuple(fields["raw"]["branches"])})
        return cls(**{**fields, "raw": raw})


class FileKeeper:
    """Decides file by file which to keep, so that a job keeps little more than its budget with any number of workers.

    A file is kept where the hash of its place is small enough for RECORDS of all files, and for 1.5 times BUDGET of
    their bytes, going by the mean size so far. Besides, of each branch the file of the smallest hash so far is kept.
    Safe to use from several threads.

    Args:
      staging: where copies are written.
      records: how many files there are in all.
    """

    def __init__(self, staging: str, records: int) -> None:
        self._staging = staging
        self._share = 2**64 / max(records, 1)
        self._seen = self._bytes = 0
        self._smallest: dict[str, int] = {}
        self._lock = threading.Lock()

    def keep(self, rank: int, data: bytes, branches: tuple[str, ...]) -> KeptFile | None:
        """Writes a copy of a file, if it is to be kept. `rank` is the hash of its place."""
        if not self._chosen(rank, len(data), branches):
            return None
        path = layout.join(self._staging, f"parity-{uuid.uuid4().hex}")
        storage.write_bytes(path, data)
        return KeptFile(path, len(data), branches)

    def _chosen(self, rank: int, size: int, branches: tuple[str, ...]) -> bool:
        with self._lock:
            self._seen += 1
            self._bytes += size
            within = rank <= self._share * min(RECORDS, 1.5 * BUDGET * self._seen / max(self._bytes, 1))
            first = [branch for branch in branches if rank < self._smallest.get(branch, 2**64)]
            if not within and not (size <= LIMIT and first):
                return False
            self._smallest.update(dict.fromkeys(first, rank))
            return True


def write_stored(staging: str, example: bytes) -> str:
    """Writes a stored record, a serialized tf.Example, and returns its path."""
    path = layout.join(staging, f"parity-{uuid.uuid4().hex}")
    storage.write_bytes(path, example)
    return path


def choose(records: Iterable[ParityFiles], *, budget: int = BUDGET, limit: int = LIMIT) -> list[ParityFiles]:
    """The records to keep, by rank.

    Those of the smallest ranks that `budget` holds; then the first of each branch that is missing, while `limit` holds
    them; and if all are larger than that, the smallest of them.
    """
    ordered = sorted(records, key=lambda record: record.rank)
    chosen: list[ParityFiles] = []
    size = 0
    for record in ordered:
        if size + record.raw.size > budget:
            break
        chosen.append(record)
        size += record.raw.size
    branches = {branch for record in chosen for branch in record.raw.branches}
    for record in ordered[len(chosen) :]:
        if not set(record.raw.branches) <= branches and size + record.raw.size <= limit:
            chosen.append(record)
            size += record.raw.size
            branches |= set(record.raw.branches)
    return chosen or sorted(ordered, key=lambda record: record.raw.size)[:1]
