"""Statistics and traces of leakage of the same rows, collected together: of a unit of the input, or of several.

Rounding and sketches depend on how rows are grouped. So they are collected unit by unit, and those of the units are
merged in their order: then equal inputs have equal profiles, however many processes collect them.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.profile.columns import Column, RawBatch
from schemas.profile.duplicates import RecordHashes
from schemas.profile.leakage import LeakageProfile, RowCollector, WatchedRows
from schemas.profile.statistics import Statistics

_SIZE = struct.Struct("<Q")  # of the statistics, before the hashes


class Profiles:
    """What is collected of some rows.

    Args:
      columns: what is described; None: no statistics are collected.
      watched: what is looked at for leakage; None: nothing.

    Attributes:
      statistics: None if they are not collected.
      leakage: None if nothing is looked at, or there was no row.
    """

    def __init__(self, columns: Sequence[Column] | None, watched: WatchedRows | None) -> None:
        self.statistics = None if columns is None else Statistics(columns)
        self.leakage: LeakageProfile | None = None
        self._collector = None if watched is None else RowCollector(watched)

    def add(self, batch: pa.RecordBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds accepted rows: their raw columns, and of each its split (int8), its input's key and its offset."""
        raw = RawBatch.of(batch)
        if self.statistics is not None:
            self.statistics.add(raw, splits)
        if self._collector is not None:
            self._collector.add(raw, splits, files, offsets)
            self.leakage = self._collector.profile

    @property
    def empty(self) -> bool:
        """Whether there was no row."""
        return self.leakage is None and (self.statistics is None or not self.statistics.rows)

    @staticmethod
    def joined(total: Profiles | None, following: Profiles) -> Profiles | None:
        """The profiles of all units up to the following one; None if no unit had a row."""
        if total is None or following.empty:
            return total if following.empty else following
        if total.statistics is not None and following.statistics is not None:
            total.statistics.merge(following.statistics)
        if total.leakage is not None and following.leakage is not None:
            total.leakage.merge(following.leakage)
        return total

    def write(self, path: str) -> None:
        """Writes a file, which appears when it is complete. Raises OSError if the disk refuses."""
        temporary = f"{path}.part"
        try:
            with pa.OSFile(temporary, "wb") as file:
                statistics = b"" if self.statistics is None else self.statistics.to_bytes()
                file.write(_SIZE.pack(len(statistics)))
                file.write(statistics)
                for name, hashes in () if self.leakage is None else self.leakage.hashes.items():
                    hashes.write(file, name)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    @staticmethod
    def read(path: str) -> Profiles:
        """The inverse of `write`, for the process that has started the writer. Raises FileNotFoundError."""
        profiles = Profiles(None, None)
        with pa.memory_map(path) as file:
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            if size:
                profiles.statistics = Statistics.from_bytes(file.read(size), source=path)
            while file.tell() < file.size():
                name, hashes = RecordHashes.read(file)
                profiles.leakage = profiles.leakage or LeakageProfile({})
                profiles.leakage.hashes[name] = hashes
        return profiles
