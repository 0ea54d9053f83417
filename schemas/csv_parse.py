"""Records to columns of bytes: pyarrow's parser where all readers agree, and one record at a time where they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from schemas.csv_fields import join_fields, split_fields
from schemas.csv_lines import Records, irregular_records
from schemas.errors import MillraceError

_BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How fields are told apart; `lines`: a record is one physical line."""

    delimiter: str
    quote: str
    lines: bool


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Columns (binary `[m]`, by their position in the file), the record's number of each row, and what is no row.

    `rows` is int64 `[m]`, rising; `bad` holds (record number, reason, what was found and expected).
    """

    columns: dict[int, pa.BinaryArray]
    rows: np.ndarray
    bad: list[tuple[int, str, str]]


def parse_records(records: Records, dialect: Dialect, *, width: int, positions: Sequence[int]) -> Parsed:
    """Parses records of `width` fields, of which those at `positions` are wanted.

    Every record comes out as Python's csv module reads it by itself, or is among the bad ones: too_few_columns,
    too_many_columns, unterminated_quote, stray_carriage_return, and stray_quote: a line with an odd number of quotes,
    which may be the end of a quoted field that began some lines before.
    """
    odd = irregular_records(records, delimiter=ord(dialect.delimiter), quote=ord(dialect.quote), lines=dialect.lines)
    bad: dict[int, tuple[str, str]] = {}
    repaired: dict[int, bytes] = {}
    for index in np.flatnonzero(odd).tolist():
        record = records.raw(index)
        fields = split_fields(record, dialect.delimiter, dialect.quote)
        if isinstance(fields, str):
            bad[index] = (fields, _EXPLAIN[fields])
        elif dialect.lines and record.count(dialect.quote.encode()) % 2:
            bad[index] = ("stray_quote", _EXPLAIN["stray_quote"])
        elif len(fields) != width:
            bad[index] = _wrong_width(len(fields), width)
        else:
            repaired[index] = join_fields(fields, dialect.delimiter, dialect.quote)
    table = None
    if len(bad) < len(records):
        table = _try_parse(_patched(records, bad, repaired), dialect, width, positions)
    if table is None or table.num_rows != len(records) - len(bad):
        counts = _count_fields(records, odd, dialect)
        for index in np.flatnonzero((counts != width) & ~odd).tolist():
            bad[index] = _wrong_width(int(counts[index]), width)
        if len(bad) < len(records):
            table = _try_parse(_patched(records, bad, repaired), dialect, width, positions)
    rows = np.arange(len(records))
    if bad:
        keep = np.ones(len(records), bool)
        keep[list(bad)] = False
        rows = rows[keep]
    if not len(rows):
        table = pa.table({str(p): pa.array([], pa.binary()) for p in positions})
    if table is None or table.num_rows != len(rows):
        raise MillraceError(
            f"the CSV parser made {'no' if table is None else table.num_rows} rows of {len(rows)} records near byte "
            f"{records.offset}; this is a bug in the reader, and no row was taken"
        )
    columns = {p: _one_chunk(table.column(i)) for i, p in enumerate(positions)}
    return Parsed(columns, rows, [(i, *bad[i]) for i in sorted(bad)])


_EXPLAIN = {
    "unterminated_quote": "a quote opens a field and never closes; expected a closing quote in the same record",
    "stray_quote": "found an odd number of quotes in the line, or text behind a closing quote; expected quotes in "
    "pairs around a whole field, and doubled inside it "
    "(if quoted fields go over several lines, declare csv: {quoted_newlines: true})",
    "stray_carriage_return": "a carriage return stands inside the line; expected one at the line's end only",
}


def _wrong_width(found: int, width: int) -> tuple[str, str]:
    return "too_few_columns" if found < width else "too_many_columns", f"found {found} columns, expected {width}"


def _patched(records: Records, bad: dict[int, tuple[str, str]], repaired: dict[int, bytes]) -> bytes | memoryview:
    """The records' bytes without the bad ones, and with the repaired ones in their place."""
    if not len(records):
        return b""
    view = memoryview(records.data)
    first, last = int(records.starts[0]), int(records.ends[-1])
    if not bad and not repaired:
        data = view[first:last] if first or last < len(view) else view
        return b"\n" + data if data[:3] == _BOM else data  # pyarrow drops what looks like a mark at a block's start
    pieces: list[bytes | memoryview] = [b"\n"]
    position = first
    for index in sorted({*bad, *repaired}):
        pieces.append(view[position : int(records.starts[index])])
        if index in repaired:
            pieces += [repaired[index], b"\n"]
        position = int(records.ends[index])
    pieces.append(view[position:last])
    return b"".join(pieces)


def _try_parse(data: bytes | memoryview, dialect: Dialect, width: int, positions: Sequence[int]) -> pa.Table | None:
    """All fields as bytes, untouched; None if the parser stumbles."""
    names = [str(i) for i in range(width)]
    wanted = [str(p) for p in positions] or names[:1]
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True, ignore_empty_lines=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.binary()),
                check_utf8=False,
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None


def _count_fields(records: Records, odd: np.ndarray, dialect: Dialect) -> np.ndarray:
    """int64 `[n]`: the number of fields of each record that is not odd."""
    codes = np.frombuffer(records.data, np.uint8)
    marks = np.flatnonzero(codes == ord(dialect.delimiter))
    owner = np.searchsorted(records.starts, marks, side="right") - 1
    valid = owner >= 0
    marks, owner = marks[valid], owner[valid]
    inside = marks < records.ends[owner]
    if dialect.quote.encode() in records.data:
        quotes = np.flatnonzero(codes == ord(dialect.quote))
        before = np.searchsorted(quotes, marks) - np.searchsorted(quotes, records.starts)[owner]
        inside &= before % 2 == 0
    return np.bincount(owner[inside], minlength=len(records)) + 1


def _one_chunk(column: pa.ChunkedArray) -> pa.BinaryArray:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
