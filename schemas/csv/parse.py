"""Records to columns of bytes: cut at their delimiters where all readers agree, one at a time where they do not."""

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
    delimiter, quote = dialect.delimiter, dialect.quote
    odd = irregular_records(records, delimiter=ord(delimiter), quote=ord(quote), lines=dialect.lines)
    bad: dict[int, tuple[str, str]] = {}
    regular: dict[int, bytes] = {}  # the odd ones once more, written as a plain writer would; nothing for a bad one
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
    "stray_quote": "found an odd number of quotes in the line, or text behind a closing quote; expected quotes in "
    "pairs around a whole field, and doubled inside it "
    "(if quoted fields go over several lines, declare csv: {quoted_newlines: true})",
    "stray_carriage_return": "a carriage return stands inside the line; expected one at the line's end only",
}


def _without(values: np.ndarray, left_out: dict[int, tuple[str, str]] | dict[int, int]) -> np.ndarray:
    """The values but for those at some places."""
    return np.delete(values, list(left_out)) if left_out else values
