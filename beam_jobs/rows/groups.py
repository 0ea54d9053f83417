"""Small files read together: a group of ranges is one element of the pipeline, and few batches.

Each element, and each batch, costs milliseconds in Beam and in the transform's graph, which is more than it takes to
read a file of a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas.rows import Decoded, RowRange

GROUP_BYTES = 1 << 20  # of a group of several ranges
GROUP_RANGES = 256
JOINED_ROWS = 1024

Group = tuple[RowRange, ...]
InGroup = tuple[int, Decoded]  # a batch, with the place of its range in the group


def range_bytes(part: RowRange) -> int:
    """The size of a range; of a compressed file, as it is on disk."""
    return (part.file.size if part.end is None else part.end) - part.start


def grouped(ranges: Iterable[RowRange], *, group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
    """Groups consecutive ranges, in order: those that are small together, and each other one by itself."""
    some: list[RowRange] = []
    size = 0
    for part in ranges:
        if some and (size + range_bytes(part) > group_bytes or len(some) == GROUP_RANGES):
            yield tuple(some)
            some, size = [], 0
        some.append(part)
        size += range_bytes(part)
    if some:
        yield tuple(some)


def joined(decoded: Iterable[InGroup], group: Group) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a group, its batches joined to batches of about JOINED_ROWS; those of one range as they are.

    Yields:
      A batch that has rows, and for each of them the place of its range in the group, int64 `[rows]`.
    """
    some: list[InGroup] = []
    rows = 0
    for place, item in decoded:
        if not item.batch.num_rows:
            continue
        some.append((place, item))
        rows += item.batch.num_rows
        if len(group) == 1 or rows >= JOINED_ROWS:
            yield _joined(some)
            some, rows = [], 0
    if some:
        yield _joined(some)


def _joined(some: Sequence[InGroup]) -> tuple[pa.RecordBatch, np.ndarray]:
    places = np.repeat([place for place, _ in some], [item.batch.num_rows for _, item in some])
    batches = [item.batch for _, item in some]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches), places
