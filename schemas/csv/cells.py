"""Finds the cells of regular records by their delimiters, without a CSV parser, and gathers them into columns.

Only the delimiter and the quote have a meaning here, and a record is cut only at its own delimiters: nothing in one
record can shift the cells of another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.lines import Records
from schemas.errors import MillraceError

_MAX_BYTES = 1 << 30  # positions and element counts (cells and the gaps between them) are int32


@dataclasses.dataclass(frozen=True)
class Cells:
    """Cell j of record i is `data[bounds[i, j, 0]:bounds[i, j, 1]]`, without the quotes around it.

    Attributes:
        data: the records' bytes.
        bounds: int32 `[n, width, 2]`, ascending in this order.
        quote: the quote character if any cell contains one, where it is still doubled; otherwise None.
    """

    data: bytes
    bounds: np.ndarray
    quote: str | None


def find_cells(records: Records, *, delimiter: str, quote: str, width: int) -> tuple[Cells, dict[int, int]]:
    """The cells of all records of `width` fields.

    Args:
        records: regular records (see `schemas.csv.lines`): each quote opens a cell, closes it, or is doubled.
        delimiter: one ASCII character.
        quote: one ASCII character.
        width: the number of fields expected.

    Returns:
        The cells, and the number of fields of each record that does not have `width` fields and is left out.
    """
    if len(records.data) > _MAX_BYTES:
        raise MillraceError(f"{len(records.data):,} bytes of CSV at once; expected at most {_MAX_BYTES:,}")
    codes = np.frombuffer(records.data, np.uint8)
    starts, ends = records.starts, records.ends
    marks = np.flatnonzero(codes == ord(delimiter))
    quoted, doubled = ord(quote) in records.data, False
    if quoted:
        quotes = np.flatnonzero(codes == ord(quote))
        marks = marks[np.searchsorted(quotes, marks) % 2 == 0]  # each record has an even number of quotes
    wrong: dict[int, int] = {}
    if not _fills(marks, starts, ends, width):
        owner = np.searchsorted(starts, marks, side="right") - 1
        found = np.bincount(owner, minlength=len(starts)) + 1
        right = found == width
        wrong = {i: int(found[i]) for i in np.flatnonzero(~right).tolist()}
        marks, starts, ends = marks[right[owner]], starts[right], ends[right]
        if not _fills(marks, starts, ends, width):
            raise MillraceError(
                f"{len(starts)} records of {width} fields near byte {records.offset}, but {len(marks)} delimiters; "
                "this is a bug in the reader; no rows were used"
            )
    bounds = np.empty((len(starts), width, 2), np.int32)
    between = marks.reshape(len(starts), width - 1)
    bounds[:, 0, 0] = starts
    np.add(between, 1, out=bounds[:, 1:, 0], casting="unsafe")
    bounds[:, :-1, 1] = between
    bounds[:, -1, 1] = ends
    if quoted:
        first, last = bounds[:, :, 0], bounds[:, :, 1]
        inside = (codes.take(first, mode="clip") == ord(quote)) & (first < last)
        first += inside
        last -= inside
        doubled = bool((np.diff(quotes) == 1).any())
    return Cells(records.data, bounds, quote if doubled else None), wrong


def _fills(marks: np.ndarray, starts: np.ndarray, ends: np.ndarray, width: int) -> bool:
    """Whether each record contains exactly `width - 1` of the marks.

    The total is not enough: one record may have too many and another too few. But if the total is right, and the first
    and last mark of each record's share (in order) lie inside that record, then all of its marks do.
    """
    if len(marks) != len(starts) * (width - 1):
        return False
    if not len(marks):
        return True
    shares = marks.reshape(len(starts), width - 1)
    return bool((shares[:, 0] >= starts).all() and (shares[:, -1] < ends).all())


def take_columns(cells: Cells, positions: Sequence[int]) -> dict[int, pa.BinaryArray]:
    """Binary `[n]` for each position: slices of one array."""
    count, width, _ = cells.bounds.shape
    if not count or not positions:
        return {position: pa.array([], pa.binary()) for position in positions}
    # Even elements are the cells, odd elements the gaps between them.
    elements = 2 * count * width - 1
    every = pa.Array.from_buffers(
        pa.binary(), elements, [None, pa.py_buffer(cells.bounds), pa.py_buffer(cells.data)], null_count=0
    )
    index = np.add.outer(2 * np.array(positions, np.int32), np.arange(0, elements, 2 * width, dtype=np.int32))
    taken = every.take(pa.array(index.reshape(-1)))
    if cells.quote is not None:
        taken = pc.replace_substring(taken, 2 * cells.quote, cells.quote)
    return {position: taken.slice(i * count, count) for i, position in enumerate(positions)}
