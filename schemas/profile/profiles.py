"""Collects statistics and traces of leakage from the same rows.

Rounding and sketches depend on how rows are grouped. So each unit of the input has a profile of its own, and profiles
are merged in the order of the units: then equal inputs have equal profiles, however many processes collect them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.profile.columns import EncodedBatch, ProfiledColumn
from schemas.profile.leakage import RowLeakage, WatchedRows
from schemas.profile.statistics import Statistics
from schemas.storage import NewFile


class Profiles:
    """The statistics of rows, and their traces of leakage.

    Args:
      columns: what is described; None: no statistics are collected.
      watched: the columns that are searched for leakage; None: none is.

    Attributes:
      rows: how many there are.
      statistics: None if they are not collected.
      leakage: None if leakage is not looked for.
    """

    def __init__(self, columns: Sequence[ProfiledColumn] | None, watched: WatchedRows | None) -> None:
        self.rows = 0
        self.statistics = None if columns is None else Statistics(columns)
        self.leakage = None if watched is None else RowLeakage(watched)

    def add(self, batch: pa.RecordBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds accepted rows: their raw columns, and of each its split (int8), its input's key and its offset."""
        self.rows += batch.num_rows
        raw = EncodedBatch(batch)
        if self.statistics is not None:
            self.statistics.add(raw, splits)
        if self.leakage is not None:
            self.leakage.add(raw, splits, files, offsets)

    def merge(self, following: Profiles) -> None:
        """Adds the rows of the unit that follows, of the same columns."""
        self.rows += following.rows
        if self.statistics is not None and following.statistics is not None:
            self.statistics.merge(following.statistics)
        if self.leakage is not None and following.leakage is not None:
            self.leakage.merge(following.leakage)

    def write(self, path: str) -> None:
        """Writes a file, which appears when it is complete. Raises MillraceError if the disk refuses."""
        with NewFile(path) as file:
            pickle.dump(self, file, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def read(path: str) -> Profiles:
        """Reads what `write` wrote, in the process that has started the writer. Raises FileNotFoundError."""
        with open(path, "rb") as file:
            profiles: Profiles = pickle.load(file)  # noqa: S301 - of a child of this process
            return profiles
