"""Whatever the bytes are: each record comes out as Python's csv module reads it, or is rejected, in any chunking.

Every test here draws the dialect, the encoding, the compression, and the sizes of ranges, batches and pieces too.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.csv import reader
from schemas.csv.file import binary_kind
from schemas.spec.table import OFFSET
from tests.support.csv_reading import Reading, Row, Written, expected_rows, read_bytes

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
TEXT = ANY.filter(lambda data: binary_kind(data) is None)  # what begins as an image or an archive does is refused
SIZES = st.sampled_from([1, 2, 3, 5, 8, 13, 64, 1 << 20])
DELIMITERS = st.sampled_from([",", ",", ";", "\t", "|", " ", ":", "\x01", "\x1f", "a", "1", "e", "."])
QUOTES = st.sampled_from(['"', '"', "'", "`", "^", "$", "\\"])

SIGNATURES = (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
WRITTEN = st.builds(
    Written,
    delimiter=DELIMITERS,
    quote=QUOTES,
    encoding=st.sampled_from(
        ["utf-8", "utf-8", "marked utf-8", "latin-1", "utf-16", "marked utf-16-le", "marked utf-16-be"]
    ),
    members=st.sampled_from([0, 0, 0, 1, 3]),
)


def read(
    data: bytes, written: Written, *, quoted_newlines: bool, pieces: int = 1 << 20, **sizes: int
) -> tuple[bytes, Reading]:
    """The text as it is counted, and what is read of it; offsets count from the text's first byte."""
    text = written.text(data)
    if text.startswith(SIGNATURES) or (written.encoding == "utf-16" and text.startswith("\ufeff\ufffe".encode())):
        text = b"x" + text  # else it would say of itself that it is something else
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(reader, "_PIECE_BYTES", pieces):
        schema = written.schema(quoted_newlines=quoted_newlines)
        reading = read_bytes(Path(folder), written.file(text), schema, **sizes)
    rows = [row | {OFFSET: row[OFFSET] - written.first} for row in reading.rows]
    rejects = [dataclasses.replace(r, source="", offset=r.offset - written.first) for r in reading.rejects]
    return text, Reading(rows, rejects, reading.read)


def check(reading: Reading, expected: list[tuple[int, Row | None]], text: bytes, quote: str) -> None:
    """Each record is what is expected, or is rejected for text behind a closing quote, which csv.reader would join."""
    strays = {r.offset for r in reading.rejects if r.reason == "stray_quote" and r.raw.count(quote.encode()) > 1}
    expected = [(offset, None if offset in strays else row) for offset, row in expected]
    rows = [(row[OFFSET], (row["t"], row["n"], row["l"])) for row in reading.rows]
    assert rows == [(offset, row) for offset, row in expected if row is not None]
    assert [r.offset for r in reading.rejects] == [offset for offset, row in expected if row is None]
    assert reading.read == len(expected)
    assert all(text[r.offset : r.offset + len(r.raw)] == r.raw for r in reading.rejects)


FIRST_LINE = st.sampled_from([b"x,0,y\n", b"x,0,y\n", b"x,0,y\r\n", b"\n", b""])


@pytest.mark.slow
@settings(max_examples=400)
@given(first=FIRST_LINE, data=TEXT, written=WRITTEN, range_bytes=SIZES, batch_bytes=SIZES, pieces=SIZES)
@example(first=b"x,0,y\n", data=b'1,"a,2\n3,4,5\n6,"7\n', written=Written(), range_bytes=1, batch_bytes=1, pieces=1)
@example(first=b"x,0,y\n", data=b"a,1,b\rc,2,d\ne,3,f\n", written=Written(), range_bytes=3, batch_bytes=1, pieces=9)
@example(
    first=b"x,0,y\n", data=b"a,1,b\n\xef\xbb\xbfc,2,d\n", written=Written(), range_bytes=6, batch_bytes=6, pieces=6
)
def test_each_line_comes_out_as_csv_reads_it_alone_or_is_rejected(
    first: bytes, data: bytes, written: Written, range_bytes: int, batch_bytes: int, pieces: int
) -> None:
    sizes = {"range_bytes": range_bytes, "batch_bytes": batch_bytes, "pieces": pieces}
    text, reading = read(first + data, written, quoted_newlines=False, **sizes)
    lines = text.replace(b"\r", b"\n") if b"\n" not in text else text  # an old Mac's
    check(reading, expected_rows(text, written, quoted_newlines=False), lines, written.quote)


@pytest.mark.slow
@settings(max_examples=400)
@given(data=TEXT, written=WRITTEN, batch_bytes=SIZES, pieces=SIZES)
@example(data=b'"a\nb",1,"c\r\nd"\r\ne,2,f', written=Written(), batch_bytes=1, pieces=1)
@example(data=b'"a\nb",1,"c\r\n"\r\ne,2,f', written=Written(), batch_bytes=1, pieces=1)
@example(data=b'a"b,1,c\n"d\n', written=Written(), batch_bytes=2, pieces=2)
def test_quoted_newlines_are_read_as_the_csv_module_reads_them(
    data: bytes, written: Written, batch_bytes: int, pieces: int
) -> None:
    text, reading = read(data, written, quoted_newlines=True, batch_bytes=batch_bytes, pieces=pieces)
    check(reading, expected_rows(text, written, quoted_newlines=True), text, written.quote)


@pytest.mark.parametrize("quoted_newlines", [False, True], ids=["lines", "quoted newlines"])
@settings(max_examples=100)
@given(
    data=TEXT,
    written=WRITTEN,
    limit=st.integers(1, 12),
    sizes=st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=2, max_size=2),
)
@example(data=b",\r\r\n", written=Written(), limit=2, sizes=[(1, 1, 1), (1, 3, 1)])
def test_records_too_long_are_the_same_ones_for_every_size(
    quoted_newlines: bool, data: bytes, written: Written, limit: int, sizes: list[Any]
) -> None:
    readings = []
    for range_bytes, batch_bytes, pieces in sizes:
        options = {"range_bytes": range_bytes, "batch_bytes": batch_bytes, "pieces": pieces, "max_record_bytes": limit}
        readings.append(read(b"x,0,y\n" + data, written, quoted_newlines=quoted_newlines, **options))
    assert readings[0] == readings[1]
