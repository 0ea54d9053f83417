"""Whatever the bytes are: each record comes out as Python's csv module reads it, or is rejected, in any chunking."""

from __future__ import annotations

import csv
import io
import math
import re
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.raw import OFFSET
from tests.schemas.csv_reading import Reading, read_bytes, schema_of

FIELDS = [
    b"",
    b"a",
    b"1",
    b" 2.5 ",
    b"+3",
    b"1e400",
    b"nan",
    b"0x1",
    b"-0",
    b"?",
    b'"',
    b'""',
    b'"q"',
    b'"a,b"',
    b'x"y',
    b"\xff",
    b"\xc3\xa9",
]
PIECES = [
    b",",
    b",",
    b",",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\x00",
    b"\xef\xbb\xbf",
    b'"',
    b" ",
    b'"x\ny"',
    b'""',
    *FIELDS,
]
LINES = st.lists(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=4).map(b",".join), max_size=8).map(b"\n".join)
ANY = st.one_of(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), LINES, st.binary(max_size=60))
SIZES = st.sampled_from([1, 2, 3, 5, 8, 13, 64, 1 << 20])

FEATURES = ({"name": "t", "kind": "text", "column": 0}, {"name": "n", "kind": "numeric", "column": 1})
LABEL = {"name": "l", "kind": "category", "column": 2}
PLAIN = schema_of(FEATURES, label=LABEL, header="none", num_columns=3)
QUOTED = schema_of(FEATURES, label=LABEL, header="none", num_columns=3, quoted_newlines=True)
DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parsed(fields: list[bytes]) -> tuple[bytes, float, bytes] | None:
    """What three fields mean; None if the row must be rejected."""
    if len(fields) != 3:
        return None
    text, number, label = fields[0], fields[1].strip(b" \t\n\v\f\r"), fields[2].strip(b" \t\n\v\f\r")
    try:
        text.decode()
        label.decode()
        value = struct.unpack("<f", struct.pack("<f", float(number)))[0] if DECIMAL.fullmatch(number) else None
    except (UnicodeDecodeError, OverflowError):
        return None
    return None if value is None or math.isinf(value) else (text, value, label)


def as_csv_reads(text: str, **options: Any) -> list[list[bytes]]:
    """The rows of csv.reader as bytes; `text` holds one character per byte."""
    return [[f.encode("latin-1") for f in row] for row in csv.reader(io.StringIO(text, newline=""), **options)]


def line_by_line(data: bytes) -> list[tuple[int, tuple[bytes, float, bytes] | None]]:
    """(offset, row or None) of each line that is not empty, each read alone; quotes must come in pairs."""
    found = []
    offset = 0
    for line in data.split(b"\n"):
        content = line.rstrip(b"\r")
        if content:
            # Strict about one thing only: a quote that never closes, which csv takes to close at the end.
            unterminated = len(as_csv_reads(content.replace(b"\r", b" ").decode("latin-1") + "\n\n,,,\n")) == 1
            try:
                rows = list(csv.reader([content.decode("latin-1")]))
            except csv.Error:
                rows = []
            stray = content.count(b'"') % 2 == 1
            row = [f.encode("latin-1") for f in rows[0]] if len(rows) == 1 and not unterminated and not stray else []
            found.append((offset, parsed(row)))
        offset += len(line) + 1
    return found


def check(reading: Reading, expected: list[tuple[int, tuple[bytes, float, bytes] | None]], data: bytes) -> None:
    rows = [(row[OFFSET], (row["t"], row["n"], row["l"])) for row in reading.rows]
    assert rows == [(offset, row) for offset, row in expected if row is not None]
    assert [r.offset for r in reading.rejects] == [offset for offset, row in expected if row is None]
    assert reading.read == len(expected)
    assert all(data[r.offset : r.offset + len(r.raw)] == r.raw for r in reading.rejects)


@settings(max_examples=600, deadline=None)
@given(data=ANY, range_bytes=SIZES, batch_bytes=SIZES)
@example(data=b'1,"a,2\n3,4,5\n6,"7\n', range_bytes=1, batch_bytes=1)
@example(data=b"a,1,b\rc,2,d\ne,3,f\n", range_bytes=3, batch_bytes=1)
@example(data=b"a,1,b\n\xef\xbb\xbfc,2,d\n", range_bytes=6, batch_bytes=6)
def test_each_line_comes_out_as_csv_reads_it_alone_or_is_rejected(
    data: bytes, range_bytes: int, batch_bytes: int
) -> None:
    data = b"x,0,y\n" + data  # a first line that ends in a line feed: the file's lines do
    with tempfile.TemporaryDirectory() as folder:
        reading = read_bytes(Path(folder), data, PLAIN, range_bytes=range_bytes, batch_bytes=batch_bytes)
    check(reading, line_by_line(data), data)


def whole_text(data: bytes) -> list[tuple[bytes, float, bytes] | None]:
    """Each record that is not empty, of the whole text; a quote that never closes makes the last one bad."""
    text = data.decode("latin-1")
    rows = [row for row in as_csv_reads(text) if row]
    open_at_end = len(as_csv_reads(text + "\n\n,,,\n")) == len(as_csv_reads(text))
    expected = [parsed(row) for row in rows]
    return [*expected[:-1], None] if open_at_end and expected else expected


@settings(max_examples=600, deadline=None)
@given(data=ANY, batch_bytes=SIZES)
@example(data=b'"a\nb",1,"c\r\nd"\r\ne,2,f', batch_bytes=1)
@example(data=b'a"b,1,c\n"d\n', batch_bytes=2)
def test_quoted_newlines_come_out_as_csv_reads_the_whole_text(data: bytes, batch_bytes: int) -> None:
    data = b"x,0,y\n" + data
    with tempfile.TemporaryDirectory() as folder:
        reading = read_bytes(Path(folder), data, QUOTED, batch_bytes=batch_bytes)
    expected = whole_text(data)
    found: dict[int, Any] = {row[OFFSET]: (row["t"], row["n"], row["l"]) for row in reading.rows}
    found |= {r.offset: None for r in reading.rejects}
    strays = {
        r.offset for r in reading.rejects if r.reason == "stray_quote"
    }  # csv.reader would join what it cannot tell
    assert len(found) == len(expected)
    for offset, row in zip(sorted(found), expected, strict=True):
        assert found[offset] == row or offset in strays
    assert all(data[r.offset : r.offset + len(r.raw)] == r.raw for r in reading.rejects)


@pytest.mark.parametrize("schema", [PLAIN, QUOTED], ids=["lines", "quoted newlines"])
@settings(max_examples=200, deadline=None)
@given(data=ANY, limit=st.integers(1, 12), sizes=st.lists(st.tuples(SIZES, SIZES), min_size=2, max_size=2))
def test_records_too_long_are_the_same_ones_for_every_size(
    schema: Any, data: bytes, limit: int, sizes: list[Any]
) -> None:
    readings = []
    with tempfile.TemporaryDirectory() as folder:
        for range_bytes, batch_bytes in sizes:
            options = {"range_bytes": range_bytes, "batch_bytes": batch_bytes, "max_record_bytes": limit}
            reading = read_bytes(Path(folder), b"x,0,y\n" + data, schema, **options)
            readings.append((reading.rows, reading.rejects, reading.read))
    assert readings[0] == readings[1]
