"""Collects statistics, and the data for finding leakage, from the same rows.

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
    """The statistics of rows, and the data for finding leakage among the rows.

    Args:
      columns: the columns to collect statistics of; with None, no statistics are collected.
      watched: the columns to search for leakage; with None, leakage is not searched for.

    Attributes:
      rows: the number of rows.
      statistics: the statistics, or None if `columns` is None.
      leakage: the data for finding leakage, or None if `watched` is None.
    """

    def __init__(self, columns: Sequence[ProfiledColumn] | None, watched: WatchedRows | None) -> None:
        self.rows = 0
        self.statistics = None if columns is None else Statistics(columns)
        self.leakage = None if watched is None else RowLeakage(watched)

    def add(self, batch: pa.RecordBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds accepted rows.

        Args:
          batch: the raw columns of the rows.
          splits: the split of each row, int8 `[rows]`.
          files: the key of each row's input, `[rows]`.
          offsets: the offset of each row in its input, `[rows]`.
        """
        self.rows += batch.num_rows
        raw = EncodedBatch(batch)
        if self.statistics is not None:
            self.statistics.add(raw, splits)
        if self.leakage is not None:
            self.leakage.add(raw, splits, files, offsets)

    def merge(self, following: Profiles) -> None:
        """Adds the profiles of the unit of the input that follows. Both must have the same columns."""
        self.rows += following.rows
        if self.statistics is not None and following.statistics is not None:
            self.statistics.merge(following.statistics)
        if self.leakage is not None and following.leakage is not None:
            self.leakage.merge(following.leakage)

    def write(self, path: str) -> None:
        """Writes the profiles to a file, which appears under `path` only when it is complete.

        Raises:
          MillraceError: the file cannot be written.
        """
        with NewFile(path) as file:
            pickle.dump(self, file, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def read(path: str) -> Profiles:
        """Reads the profiles that a child of this process has written with `write`.

        Raises:
          FileNotFoundError: there is no such file.
        """
        with open(path, "rb") as file:
            profiles: Profiles = pickle.load(file)  # noqa: S301 - of a child of this process
            return profiles
