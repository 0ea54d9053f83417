"""Parses records to columns of bytes: all at once where CSV readers agree on them, one by one where they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.csv.cells import find_cells, take_columns
from schemas.csv.fields import join_fields, split_fields
from schemas.csv.lines import Records, irregular_records, replaced
from schemas.errors import MillraceError


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


def parse_records(records: Records, dialect: Dialect, *, width: int, positions: Sequence[int]) -> Parsed:
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
            bad[index] = (fields, _EXPLAIN[fields])
        regular[index] = b"" if isinstance(fields, str) else join_fields(fields, delimiter, quote)
    rows = _without(np.arange(len(records)), bad)
    text = replaced(records, regular) if regular else records
    cells, wrong = find_cells(text, delimiter=delimiter, quote=quote, width=width)
    for row, found in wrong.items():
        reason = "too_few_columns" if found < width else "too_many_columns"
        bad[int(rows[row])] = (reason, f"found {found} columns, expected {width}")
    rows = _without(rows, wrong)
    columns = take_columns(cells, positions)
    for column in columns.values():
        if len(column) != len(rows):
            raise MillraceError(
                f"{len(column)} values in a column of {len(rows)} rows near byte {records.offset}; "
                "this is a bug in the reader; no rows were used"
            )
    return Parsed(columns, rows, [(i, *bad[i]) for i in sorted(bad)])


_EXPLAIN = {
    "unterminated_quote": "a quote opens a field and never closes; expected a closing quote in the same record",
    "stray_quote": "found an odd number of quotes in the line, or text after a closing quote; expected quotes in "
    "pairs around a whole field, and doubled inside it "
    "(if quoted fields span several lines, declare csv: {quoted_newlines: true})",
    "stray_carriage_return": "found a carriage return inside the line; expected one only at the line's end",
}


def _without(values: np.ndarray, left_out: dict[int, tuple[str, str]] | dict[int, int]) -> np.ndarray:
    """The values without those at some positions."""
    return np.delete(values, list(left_out)) if left_out else values
