"""Parses records to columns of bytes: all at once where CSV readers agree on them, one by one where they do not.

Splits a single record into fields, with the rules of Python's csv module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.csv.lines import CsvRecords, find_cells, irregular_records, replaced, take_columns
from schemas.errors import MillraceError, counted

UNTERMINATED = "unterminated_quote"
STRAY_QUOTE = "stray_quote"
STRAY_RETURN = "stray_carriage_return"


def split_fields(record: bytes, delimiter: str, quote: str) -> list[bytes] | str:
    """Splits one record (without its line end) into fields.

    The rules are those of `csv.reader` with its defaults: a quote opens a quoted field only at the field's start, and a
    doubled quote inside means one quote. Unlike `csv.reader`, this works on bytes and has no maximum field size.

    Returns:
        The fields, or why the record has none: "unterminated_quote" if a quote never closes; "stray_quote" if more than
        white space follows a closing quote (`csv.reader` silently joins both parts); "stray_carriage_return" for a
        carriage return outside quotes, which cannot occur inside a line.
    """
    d, q = delimiter.encode(), quote.encode()
    fields: list[bytes] = []
    position, size = 0, len(record)
    while True:
        field, closed = b"", False
        if record.startswith(q, position):
            parts = []
            position += 1
            while True:
                close = record.find(q, position)
                if close < 0:
                    return UNTERMINATED
                parts.append(record[position:close])
                position = close + 1
                if not record.startswith(q, position):
                    break
                parts.append(q)
                position += 1
            field, closed = b"".join(parts), True
        end = record.find(d, position)
        plain = record[position : size if end < 0 else end]
        if b"\r" in plain:
            return STRAY_RETURN
        if closed and plain.strip():
            return STRAY_QUOTE
        fields.append(field + plain)
        if end < 0:
            return fields
        position = end + 1


def join_fields(fields: list[bytes], delimiter: str, quote: str) -> bytes:
    """Writes fields as a line that every CSV reader parses to them: all are quoted."""
    d, q = delimiter.encode(), quote.encode()
    return d.join(q + field.replace(q, q + q) + q for field in fields)


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How fields are separated; `lines`: a record is one physical line."""

    delimiter: str
    quote: str
    lines: bool


@dataclasses.dataclass(frozen=True)
class Parsed:
    """The rows of a piece of a file, and the records that are invalid.

    Attributes:
        columns: binary `[m]` by position in the file.
        rows: int64 `[m]`, ascending: the record number of each row.
        bad: (record number, reason, detail) of each invalid record.
    """

    columns: dict[int, pa.BinaryArray]
    rows: np.ndarray
    bad: list[tuple[int, str, str]]


def parse_records(records: CsvRecords, dialect: Dialect, *, width: int, positions: Sequence[int]) -> Parsed:
    """Parses records of `width` fields, and returns the fields at `positions`.

    Every record is parsed as Python's csv module parses it by itself, or is bad: too_few_columns, too_many_columns,
    unterminated_quote, stray_carriage_return or stray_quote. The last includes a line with an odd number of quotes,
    which may be the end of a quoted field that began on an earlier line.
    """
    delimiter, quote = dialect.delimiter, dialect.quote
    odd = irregular_records(records, delimiter=ord(delimiter), quote=ord(quote), lines=dialect.lines)
    bad: dict[int, tuple[str, str]] = {}
    regular: dict[int, bytes] = {}  # the odd records, with all fields quoted; empty for a bad one
    for index in np.flatnonzero(odd).tolist():
        record = records.raw(index)
        fields: list[bytes] | str = split_fields(record, delimiter, quote)
        if dialect.lines and record.count(quote.encode()) % 2 and not isinstance(fields, str):
            fields = "stray_quote"
        if isinstance(fields, str):
            bad[index] = (fields, explain(fields, record, lines=dialect.lines))
        regular[index] = b"" if isinstance(fields, str) else join_fields(fields, delimiter, quote)
    rows = _without(np.arange(len(records)), bad)
    text = replaced(records, regular) if regular else records
    cells, wrong = find_cells(text, delimiter=delimiter, quote=quote, width=width)
    for row, count in wrong.items():
        reason = "too_few_columns" if count < width else "too_many_columns"
        empty = not records.raw(int(rows[row])).strip(b"\0")
        bad[int(rows[row])] = (reason, _NULS if empty else f"found {counted(count, 'columns', 'd')}, expected {width}")
    rows = _without(rows, wrong)
    columns = take_columns(cells, positions)
    for column in columns.values():
        if len(column) != len(rows):
            raise MillraceError(
                f"{len(column)} values in a column of {len(rows)} rows near byte {records.offset}; "
                "this is a bug in the reader; no rows were used"
            )
    return Parsed(columns, rows, [(i, *bad[i]) for i in sorted(bad)])


_PAIRS = "text after a closing quote; expected quotes in pairs around a whole field, and doubled inside it"
_LETTERS = r'if quotes are letters like others, declare csv: {quote: "\u0001"}'
_EXPLAIN = {
    "unterminated_quote": "a quote opens a field and never closes; expected a closing quote in the same record "
    f"({_LETTERS})",
    "stray_quote": f"found {_PAIRS}",
    "line": f"found an odd number of quotes in the line, or {_PAIRS} "
    f"(if quoted fields span several lines, declare csv: {{quoted_newlines: true}}; {_LETTERS})",
    "stray_carriage_return": "found a carriage return inside the line; expected one only at the line's end",
}


_NULS = "found NUL bytes only, as where a file was allocated and not filled; remove them by `tr -d '\\000'`"
_ESCAPED = (
    "found quotes escaped by a backslash; expected them doubled. Convert the file: "
    """sed 's/\\\\"/""/g' FILE > CONVERTED"""
)


def explain(reason: str, record: bytes, *, lines: bool = True) -> str:
    """Says what is wrong with a record that `split_fields` refuses, and what to do. `lines`: a record is one line."""
    if reason in (UNTERMINATED, STRAY_QUOTE) and b'\\"' in record:
        return _ESCAPED
    return _EXPLAIN["line" if lines and reason == STRAY_QUOTE else reason]


def _without(values: np.ndarray, left_out: dict[int, tuple[str, str]] | dict[int, int]) -> np.ndarray:
    """The values without those at some positions."""
    return np.delete(values, list(left_out)) if left_out else values
