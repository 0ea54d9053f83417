"""Groups of ranges, which are read together, and units of groups. Neither Beam nor TensorFlow.

Small files are read together: a group of ranges is one element of the pipeline, since each element, and each batch,
costs milliseconds in Beam and in the transform's graph, which is more than it takes to read a file of a few rows.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from schemas.formats import row_format
from schemas.rows import BATCH_BYTES, Decoded, RowFile, RowRange, batch_bytes
from schemas.spec.table import Schema
from schemas.storage import file_key

GROUP_BYTES = 1 << 20  # of a group of several ranges
GROUP_RANGES = 256
JOINED_ROWS = 1024
UNIT_BYTES = 64 << 20  # of a unit: merging the summaries of a thousand columns takes a tenth of a second

Group = tuple[RowRange, ...]
Unit = tuple[Group, ...]
Place = tuple[int, int]  # of a record: its file's key, and its offset
InGroup = tuple[int, Decoded]  # a batch, with the number of its range in the group
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class CorrectedRecords:
    """Corrected records of one file, which may be gone, with their offsets. Implements `schemas.rows.RowRange`."""

    file: RowFile
    raws: tuple[bytes, ...]
    offsets: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.start + self.covers

    @property
    def covers(self) -> int:
        return sum(map(len, self.raws))


def range_bytes(part: RowRange) -> int:
    """Returns the size of a range; of a compressed file, as it is on disk."""
    return (part.file.size if part.end is None else part.end) - part.start


def grouped(ranges: Iterable[RowRange], *, group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
    """Groups consecutive ranges, in order: small ones share a group, and every other one has its own."""
    return _runs(ranges, range_bytes, most_bytes=group_bytes, most_items=GROUP_RANGES)


def units_of(groups: Iterable[Group]) -> Iterator[Unit]:
    """Cuts groups into units of about UNIT_BYTES, in order."""
    return _runs(groups, lambda group: sum(map(range_bytes, group)), most_bytes=UNIT_BYTES, most_items=sys.maxsize)


def _runs(
    items: Iterable[T], size_of: Callable[[T], int], *, most_bytes: int, most_items: int
) -> Iterator[tuple[T, ...]]:
    """Cuts items into runs, none of which has more bytes or items, but for those of a single item."""
    run: list[T] = []
    size = 0
    for item in items:
        if run and (size + size_of(item) > most_bytes or len(run) == most_items):
            yield tuple(run)
            run, size = [], 0
        run.append(item)
        size += size_of(item)
    if run:
        yield tuple(run)


def unit_starts(units: Iterable[Unit]) -> list[Place]:
    """Returns where each unit begins: all its records have this place or a later one."""
    return [(file_key(unit[0][0].file.path), unit[0][0].start) for unit in units]


def decode(group: Group, schema: Schema, *, digests: bool) -> Iterator[InGroup]:
    """Decodes the records of a group. `digests`: and takes the digests of the files' blocks.

    Raises:
      MillraceError: a file cannot be read, or has changed.
    """
    form, size = row_format(schema), batch_bytes(schema)
    for number, part in enumerate(group):
        if isinstance(part, CorrectedRecords):
            yield number, form.decode_records(part.file, schema, part.raws, part.offsets)
            continue
        for decoded in form.read_range(part, schema, with_split=True, digests=digests, batch_bytes=size):
            yield number, decoded


def joined(
    decoded: Iterable[InGroup], group: Group, *, most_bytes: int = BATCH_BYTES
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Joins the batches of a group's ranges to batches of about JOINED_ROWS; those of a single range stay as they are.

    Nothing is joined to a batch of more than `most_bytes`.

    Yields:
      A batch that has rows, and for each row the number of its range in the group, int64 `[rows]`.
    """
    pending: list[InGroup] = []
    rows = size = 0
    for number, item in decoded:
        if not item.batch.num_rows:
            continue
        if pending and size + item.batch.nbytes > most_bytes:
            yield _joined(pending)
            pending, rows, size = [], 0, 0
        pending.append((number, item))
        rows += item.batch.num_rows
        size += item.batch.nbytes
        if len(group) == 1 or rows >= JOINED_ROWS:
            yield _joined(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(items: Sequence[InGroup]) -> tuple[pa.RecordBatch, np.ndarray]:
    numbers = np.repeat([number for number, _ in items], [item.batch.num_rows for _, item in items])
    batches = [item.batch for _, item in items]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches), numbers
