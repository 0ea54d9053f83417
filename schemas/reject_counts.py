"""Counts of the records that a job would reject, by reason and column, each with an example."""

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

_MARGIN, _SAMPLE_MARGIN = 1.05, 1.5  # times the share of rejects


@dataclasses.dataclass
class RejectCounts:
    """What became of the records that were read.

    Attributes:
        read: the number of records.
        by_reason: by reason and column, how many records a job would reject; the column may be empty.
        examples: by reason and column, the first of them: file, place, what is there.
        offsets: by file, the byte offsets of rejected rows, int64 arrays.
    """

    read: int = 0
    by_reason: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    offsets: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """How many records a job would reject."""
        return sum(self.by_reason.values())

    def add_rows(self, path: str, decoded: Decoded, schema: Schema) -> None:
        """Adds rows of a file, with those that its decoder accepts and a feature's transform cannot take."""
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
        """Adds images, `rejects` among them."""
        self.read += read
        for reject in rejects:
            self._add(reject, f"{reject.source}: {reject.detail}")

    def _add(self, reject: Reject, example: str) -> None:
        key = (reject.reason, reject.column or "")
        self.by_reason[key] += 1
        self.examples.setdefault(key, example)


def fraction_needed(rejected: float, read: float, *, complete: bool) -> float:
    """Returns the --max_reject_fraction with which a job tolerates its rejects, in two digits.

    Args:
      rejected: the number of records that were found to be rejected.
      read: the number of records that were read.
      complete: whether these are all records; of a sample, a larger margin is added.
    """
    share = rejected / read * (_MARGIN if complete else _SAMPLE_MARGIN)
    step = 10.0 ** (math.floor(math.log10(share)) - 1)
    return float(f"{min(1.0, math.ceil(share / step) * step):.2g}")


def _not_finite(schema: Schema, batch: pa.RecordBatch) -> Iterator[tuple[Numeric, np.ndarray]]:
    """The rows of a batch that a feature's transform makes no number of, each with the first such feature."""
    good = np.ones(batch.num_rows, bool)
    for item in schema.items:
        if isinstance(item, Numeric) and item.transform == "log" and item.name in batch.schema.names:
            values = np.asarray(batch.column(item.name).flatten()).reshape(-1, item.width)
            rows = np.flatnonzero(good & (values <= -1).any(axis=1))
            good[rows] = False
            if len(rows):
                yield item, rows
