"""Collects statistics from batches of raw columns.

Batches wait until they are some megabytes, so that the calls for each column are few however many columns there are.
Each column of numbers is then sorted: by that, what is missing is found, and the sketches take less than half the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from beam_jobs.statistics.columns import Column
from beam_jobs.statistics.frequent import summed
from beam_jobs.statistics.state import Statistics
from schemas.csv import strings
from schemas.csv.numbers import missing_tokens
from schemas.spec import images
from schemas.spec.table import SPLITS

WAITING_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class Described:
    """What is described of a kind of records.

    Attributes:
      columns: their raw columns.
      images: the prefixes of the columns that hold the sums of images' pixels; see `Statistics.channels`.
    """

    columns: tuple[Column, ...]
    images: tuple[str, ...] = ()


class Collector:
    """Collects the statistics of one bundle."""

    def __init__(self, described: Described) -> None:
        self._columns = described.columns
        self._images = described.images
        self._statistics = Statistics(described.columns)
        self.rows = 0
        self._waiting: list[tuple[dict[str, pa.Array], np.ndarray]] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, splits: np.ndarray) -> None:
        """Adds accepted records: their raw columns, and the split of each, int8 `[rows]`."""
        values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        for column in self._columns:
            if column.reads == "one_hot":  # what waits is the place of the 1
                ones = np.asarray(values[column.name]).reshape(batch.num_rows, -1) == 1
                values[column.name] = pa.array(ones.argmax(1).astype(np.int32))
        self.rows += len(splits)
        self._waiting.append((values, splits))
        self._bytes += sum(array.nbytes for array in values.values())
        if self._bytes >= WAITING_BYTES:
            self._take()

    def finish(self) -> Statistics:
        """The statistics of all that was added."""
        self._take()
        return self._statistics

    def _take(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        splits = np.concatenate([some for _, some in waiting])
        rows = {
            SPLITS[split]: np.flatnonzero(splits == split) for split in np.flatnonzero(np.bincount(splits)).tolist()
        }
        for split, places in rows.items():
            self._statistics.rows[split] = self._statistics.rows.get(split, 0) + len(places)

        def values(name: str) -> pa.Array:
            return pa.concat_arrays([found[name] for found, _ in waiting])

        for column in self._columns:
            match column.reads:
                case "numbers":
                    self._numbers(column, np.asarray(values(column.name)), rows)
                case "strings":
                    self._strings(column, values(column.name), rows)
                case "one_hot":
                    self._one_hot(column, np.asarray(values(column.name)), rows)
        for prefix in self._images:
            sums, squares, pixels = (
                np.asarray(values(prefix + key)).reshape(len(splits), -1)
                for key in (images.SUMS, images.SQUARES, images.PIXELS)
            )
            for split, places in rows.items():
                channels = self._statistics.channels_of(split, prefix)
                channels.add(pixels[places], sums[places], squares[places])

    def _numbers(self, column: Column, flat: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        total = sum(map(len, rows.values()))
        matrix = flat.reshape(total, -1).astype(np.float32, copy=False)
        for split, places in rows.items():
            chosen = matrix if len(places) == total else matrix[places]
            columns = np.array(
                chosen.reshape(1, -1) if len(column.names) == 1 else chosen.T, order="C"
            )  # a copy, to sort
            columns.sort(axis=1)  # NaN comes last
            missing = np.isnan(columns[:, -1:]).any(1)
            for name, values, some in zip(column.names, columns, missing.tolist(), strict=True):
                absent = int(np.isnan(values).sum()) if some else 0
                self._statistics.numbers(split, name).add(values[: len(values) - absent], absent)

    def _strings(self, column: Column, cells: pa.BinaryArray, rows: Mapping[str, np.ndarray]) -> None:
        found = strings.distinct(cells, missing_tokens(column.missing).tokens)
        trimmed = found.trimmed.nbytes != found.values.nbytes  # then two values may have become one
        for split, codes, occurrences in _counted(found.codes, len(found.values), rows):
            absent = found.absent[codes]
            values, counts = found.trimmed.take(pa.array(codes[~absent])), occurrences[~absent]
            if trimmed:
                values, counts = summed(values, counts)
            missing = int(occurrences[absent].sum())
            self._statistics.strings(split, column.names[0]).add(values, counts, missing)

    def _one_hot(self, column: Column, places: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        values = pa.array([value.encode() for value in column.values], pa.binary())
        for split, codes, counts in _counted(places, len(values), rows):
            self._statistics.strings(split, column.names[0]).add(values.take(pa.array(codes)), counts, 0)


def _counted(
    codes: np.ndarray, size: int, rows: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The codes that occur in each split, and how often."""
    for split, places in rows.items():
        counts = np.bincount(codes if len(places) == len(codes) else codes[places], minlength=size)
        found = np.flatnonzero(counts)
        yield split, found, counts[found]


def merged(parts: Iterable[Statistics]) -> Statistics | None:
    """The statistics of all parts together, which become part of the first one; None if there is none."""
    total: Statistics | None = None
    for part in parts:
        if total is None:
            total = part
        else:
            total.merge(part)
    return total
