"""Counts the records that a job would reject, by reason and column, and keeps an example of each."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas.rejects import Reject
from schemas.rows import Decoded
from schemas.spec.features import Numeric
from schemas.spec.table import NOT_FINITE, OFFSET, Schema

_MARGIN, _SAMPLE_MARGIN = 1.05, 1.5  # the proposed limit is the share of rejects times this


@dataclasses.dataclass
class RejectCounts:
    """How many records were read, and how many of them a job would reject, and why.

    Attributes:
      read: the number of records that were read.
      by_reason: the number of rejected records, by (reason, column); the column is '' if a reject concerns no column.
      examples: a description of the first such record, by (reason, column): its file, its place, and what is there.
      offsets: the byte offsets of the rejected rows, by file: lists of int64 arrays.
    """

    read: int = 0
    by_reason: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    offsets: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """The number of records that a job would reject."""
        return sum(self.by_reason.values())

    def add_rows(self, path: str, decoded: Decoded, schema: Schema) -> None:
        """Adds decoded rows of a file.

        Counts two kinds of rejects: rows that the decoder refused, and rows that it accepted but that a feature's
        transform cannot take, such as the logarithm of a number of -1 or less.
        """
        self.read += decoded.read
        places = self.offsets.setdefault(path, [])
        places.append(np.array([reject.offset for reject in decoded.rejects], np.int64))
        for reject in decoded.rejects:
            self._add(reject, f"{path} at byte {reject.offset:,}: {reject.detail}")
        for feature, rows in _not_finite(schema, decoded.batch):
            key, offsets = (NOT_FINITE, feature.name), np.asarray(decoded.batch.column(OFFSET))[rows]
            self.by_reason[key] += len(rows)
            self.examples.setdefault(key, f"{path} at byte {offsets[0]:,}{feature.not_finite_hint}")
            places.append(offsets)

    def add_images(self, read: int, rejects: Sequence[Reject]) -> None:
        """Adds images.

        Args:
          read: how many images were read.
          rejects: those of them that a job would reject.
        """
        self.read += read
        for reject in rejects:
            self._add(reject, f"{reject.source}: {reject.detail}")

    def _add(self, reject: Reject, example: str) -> None:
        key = (reject.reason, reject.column or "")
        self.by_reason[key] += 1
        self.examples.setdefault(key, example)


def fraction_needed(rejected: float, read: float, *, complete: bool) -> float:
    """Returns the smallest --max_reject_fraction, rounded up to two digits, with which a job tolerates these rejects.

    Args:
      rejected: the number of records that were found to be rejected; at least 1.
      read: the number of records that were read.
      complete: whether these are all records. For a sample, a larger margin is added.
    """
    share = rejected / read * (_MARGIN if complete else _SAMPLE_MARGIN)
    # The value of the share's second significant digit: 0.0123 -> 0.001.
    step = 10.0 ** (math.floor(math.log10(share)) - 1)
    return float(f"{min(1.0, math.ceil(share / step) * step):.2g}")


def _not_finite(schema: Schema, batch: pa.RecordBatch) -> Iterator[tuple[Numeric, np.ndarray]]:
    """Yields the rows of a batch that a feature's transform makes no finite number of, with that feature.

    A row is yielded once, for its first such feature. The transform `log` is log(1 + x), so it fails from -1 downwards.
    """
    good = np.ones(batch.num_rows, bool)
    for item in schema.items:
        if isinstance(item, Numeric) and item.transform == "log" and item.name in batch.schema.names:
            values = np.asarray(batch.column(item.name).flatten()).reshape(-1, item.width)
            rows = np.flatnonzero(good & (values <= -1).any(axis=1))
            good[rows] = False
            if len(rows):
                yield item, rows
