"""Finds where the records and cells of a block of CSV bytes begin and end, without a CSV parser.

Only the delimiter and the quote have a meaning here, and a record is cut only at its own delimiters: nothing in one
record can shift the cells of another. The cells of regular records are gathered into columns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import MillraceError

LF, CR = 10, 13
START, FIELD, QUOTED, QUOTE_SEEN = range(4)  # at a field's start, in plain text, in quotes, after a quote in quotes


@dataclasses.dataclass(frozen=True)
class CsvRecords:
    """Non-empty records inside `data`: record i is `data[starts[i]:ends[i]]`, without its line end.

    `starts` and `ends` are int64 `[n]`; `offset` is the position of `data[0]` in the file.
    """

    data: bytes
    offset: int
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, index: int) -> bytes:
        """Returns the bytes of one record."""
        return self.data[self.starts[index] : self.ends[index]]


def replaced(records: CsvRecords, texts: dict[int, bytes]) -> CsvRecords:
    """Returns the records with the bytes of some of them replaced; empty bytes drop the record.

    Positions refer to the new bytes. `offset` is unchanged: it only shows roughly where in the file this is.
    """
    lengths = records.ends - records.starts
    new_lengths = lengths.copy()
    new_lengths[list(texts)] = [len(text) for text in texts.values()]
    ends = records.ends + np.cumsum(new_lengths - lengths)
    pieces, position = [], 0
    for index in sorted(texts):
        pieces += [records.data[position : records.starts[index]], texts[index]]
        position = int(records.ends[index])
    pieces.append(records.data[position:])
    keep = new_lengths > 0
    return CsvRecords(b"".join(pieces), records.offset, (ends - new_lengths)[keep], ends[keep])


def in_utf8(records: CsvRecords) -> CsvRecords:
    """Converts Latin-1 records to UTF-8. ASCII bytes stay, and so do delimiters, quotes and line ends."""
    if records.data.isascii():
        return records
    codes = np.frombuffer(records.data, np.uint8)
    shift = np.concatenate([[0], np.cumsum(codes >= 0x80)])
    data = records.data.decode("latin-1").encode("utf-8")
    return CsvRecords(data, records.offset, records.starts + shift[records.starts], records.ends + shift[records.ends])


def find_lines(data: bytes, offset: int) -> tuple[CsvRecords, np.ndarray]:
    """Finds the non-empty physical lines of `data`.

    Returns:
        The records, and their lengths (int64 `[n]`) including carriage returns before a line feed.
    """
    codes = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(codes == LF)
    if data and data[-1] != LF:
        line_ends = np.append(line_ends, len(data))
    starts = np.empty_like(line_ends)
    starts[:1] = 0
    starts[1:] = line_ends[:-1] + 1
    ends = line_ends
    if CR in data:
        ends = _without_trailing_returns(codes, starts, line_ends)
    keep = ends > starts
    long_ends = line_ends
    if not keep.all():
        starts, ends, long_ends = starts[keep], ends[keep], line_ends[keep]
    return CsvRecords(data, offset, starts, ends), long_ends - starts


def _without_trailing_returns(codes: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """`ends` without the carriage returns right before them."""
    returns = np.flatnonzero(codes == CR)
    # Where the run of returns that each return belongs to begins; no run crosses a line, since a line feed ends it.
    breaks = np.flatnonzero(np.diff(returns, prepend=-2) != 1)
    run_start = returns[np.repeat(breaks, np.diff(np.append(breaks, len(returns))))]
    last = np.searchsorted(returns, ends) - 1  # the last return before each end
    adjacent = (last >= 0) & (returns[last] == ends - 1)
    return np.where(adjacent, np.maximum(run_start[last], starts), ends)


class QuotedScanner:
    """Finds record ends where quoted fields may contain line ends, with the rules of Python's csv module.

    A quote opens a quoted field only at the field's start; a doubled quote inside means one quote; after the closing
    quote, and in a field that does not begin with a quote, quotes are plain text. CR, LF or both end a record.
    """

    def __init__(self, *, delimiter: str, quote: str) -> None:
        self.delimiter, self.quote = ord(delimiter), ord(quote)
        d, q = re.escape(delimiter.encode()), re.escape(quote.encode())
        # In plain text, only the end of the record matters, and a delimiter before a quote (or before the block's end).
        self._stop = re.compile(b"[\r\n]|" + d + b"(?=" + q + b"|\\Z)")

    def scan(self, data: bytes, position: int, state: int) -> tuple[int, int]:
        """Finds the line end that ends the record (-1 if it is not in `data`), and the state after it."""
        size, quote = len(data), self.quote
        while position < size:
            if state == QUOTED:
                quote_at = data.find(quote, position)
                if quote_at < 0:
                    return -1, QUOTED
                position, state = quote_at + 1, QUOTE_SEEN
            elif data[position] == quote and state != FIELD:
                position, state = position + 1, QUOTED
            else:
                match = self._stop.search(data, position)
                if match is None:
                    return -1, FIELD
                position = match.start()
                if data[position] != self.delimiter:
                    return position, START
                position, state = position + 1, START
        return -1, state

    def boundaries(self, data: bytes, state: int, scanned: int) -> tuple[np.ndarray, int]:
        """Finds all line ends in `data` that end a record, and the state at the end of `data`.

        `data` begins with a record; its first `scanned` bytes contain no record end and leave the scanner in `state`.
        """
        codes = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(codes == self.quote) if self.quote in data else np.empty(0, np.int64)
        if regular_quotes(codes, quotes, np.arange(len(quotes)), self.delimiter).all():
            line_ends = np.flatnonzero((codes == LF) | (codes == CR))
            outside = line_ends[np.searchsorted(quotes, line_ends) % 2 == 0]
            if len(outside):
                scanned, state = int(outside[-1]) + 1, START
            return outside, self.scan(data, scanned, state)[1]
        boundaries: list[int] = []
        position = scanned
        while True:
            position, state = self.scan(data, position, state)
            if position < 0:
                return np.array(boundaries, np.int64), state
            boundaries.append(position)
            position += 1


def regular_quotes(codes: np.ndarray, quotes: np.ndarray, rank: np.ndarray, delimiter: int) -> np.ndarray:
    """Marks the quotes that are where a standard writer puts them, so that all CSV readers agree on them.

    Args:
        codes: uint8, the bytes.
        quotes: int64, the positions of the quotes.
        rank: int64, each quote's number within its record (or within all of `codes`), from 0.
        delimiter: the delimiter's code.

    Returns:
        bool: true for an opening quote (even rank) right after a delimiter, a line end, the start or a quote, and for a
        closing quote (odd rank) right before a delimiter, a line end, the end or a quote.
    """
    padded = np.empty(len(codes) + 2, np.uint8)
    padded[0] = padded[-1] = LF
    padded[1:-1] = codes
    opening = rank % 2 == 0
    neighbour = padded[np.where(opening, quotes, quotes + 2)]
    regular = (neighbour == delimiter) | (neighbour == LF) | (neighbour == CR)
    touching = np.diff(quotes) == 1
    # A doubled quote is a closing one followed directly by an opening one.
    regular[:-1] |= touching & ~opening[:-1]
    regular[1:] |= touching & opening[1:]
    return regular


def irregular_records(records: CsvRecords, *, delimiter: int, quote: int, lines: bool) -> np.ndarray:
    """Marks the records on which CSV readers disagree, which must be parsed one by one: bool `[n]`.

    They contain a quote in an unusual place, an odd number of quotes, or (if records are lines) a carriage return.
    """
    odd = np.zeros(len(records), bool)
    codes = np.frombuffer(records.data, np.uint8)
    if quote in records.data:
        quotes = np.flatnonzero(codes == quote)
        before = np.searchsorted(quotes, records.starts)
        even = not (before % 2).any() and len(quotes) % 2 == 0  # in every record
        if not even or not regular_quotes(codes, quotes, np.arange(len(quotes)), delimiter).all():
            owner = np.searchsorted(records.starts, quotes, side="right") - 1
            regular = regular_quotes(codes, quotes, np.arange(len(quotes)) - before[owner], delimiter)
            odd[owner[~regular]] = True
            odd |= np.bincount(owner, minlength=len(records)) % 2 == 1
    if lines and CR in records.data:
        returns = np.flatnonzero(codes == CR)
        owner = np.searchsorted(records.starts, returns, side="right") - 1
        inside = (owner >= 0) & (returns < records.ends[owner])
        odd[owner[inside]] = True
    return odd


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


def find_cells(records: CsvRecords, *, delimiter: str, quote: str, width: int) -> tuple[Cells, dict[int, int]]:
    """Finds the cells of all records of `width` fields.

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
        field_counts = np.bincount(owner, minlength=len(starts)) + 1
        right = field_counts == width
        wrong = {i: int(field_counts[i]) for i in np.flatnonzero(~right).tolist()}
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
    """Gathers columns: binary `[n]` for each position, slices of one array."""
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
