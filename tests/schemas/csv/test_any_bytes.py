"""Any bytes give what Python's csv module reads, or are rejects, in whatever pieces they are read."""

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
from tests.support.csv_oracle import Table, tables
from tests.support.csv_reading import Reading, Row, Written, expected_rows, read_bytes, schema_of

FIELDS = b'|a|1| 2.5 |+3|1e400|nan|0x1|-0|?|"|""|"q"|"a,b"|x"y|\xff|\xc3\xa9'.split(b"|")
PIECES = [*FIELDS, *b',|,|,|\n|\n|\r\n|\r|\n\n|\x00|\xef\xbb\xbf|"| |"x\ny"|""'.split(b"|")]
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


def _as_read(value: Any) -> Any:
    """A value without the white space around it, which a column of strings keeps; of nan, its text."""
    if isinstance(value, list):
        return [_as_read(part) for part in value]
    return value.strip(b" \t\n\v\f\r") if isinstance(value, bytes) else repr(value)


@settings(max_examples=150)
@given(table=tables(), range_bytes=SIZES, batch_bytes=SIZES)
@example(
    table=Table(
        ["-999", "2.0"],
        [
            {"name": "f0", "kind": "category", "missing_tokens": [""]},
            {"name": "f1", "kind": "numeric", "missing": 7.5},
            {"name": "f2", "kind": "key"},
        ],
        {"name": "y", "kind": "numeric", "transform": "log1p", "missing_tokens": []},
        [[[b"2.0"], [b"-9.99e2"], [b"7."], [b"-0.5"]], [[b""], [b"2"], [b"TRUE"], [b"-1"]]],
    ),
    range_bytes=1,
    batch_bytes=1,
)
def test_any_cells_of_any_schema_become_what_the_documents_say(
    table: Table, range_bytes: int, batch_bytes: int
) -> None:
    schema = schema_of(
        [table.declared(feature) for feature in table.features],
        label=table.declared(table.label),
        missing=table.tokens,
        header="none",
        columns=table.header,
        quoted_newlines=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        reading = read_bytes(Path(folder), table.data(), schema, range_bytes=range_bytes, batch_bytes=batch_bytes)
    assert reading.read == len(table.rows)
    rejects, rows = iter(reading.rejects), iter(reading.rows)
    for values, why in table.expected():
        if why:
            reject = next(rejects)
            assert (reject.reason, reject.column) in why
        else:
            row = next(rows)
            assert {name: _as_read(row[name]) for name in values} == {n: _as_read(v) for n, v in values.items()}
    assert (next(rejects, None), next(rows, None)) == (None, None)


FIRST_LINE = st.sampled_from([b"x,0,y\n", b"x,0,y\n", b"x,0,y\r\n", b"\n", b""])


@pytest.mark.slow
@settings(max_examples=250)
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
@settings(max_examples=250)
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


PLAIN = [b"a text of %03d byt,%012d.5,a label of %02d by" % (i, 37 * i, i % 17) for i in range(600)]
# Ranges, blocks and pieces. The first reads all as one piece, the second as a job does.
PIECE_SIZES = [
    (1 << 30, 1 << 30, 1 << 30),
    (1 << 30, 8 << 20, 1 << 20),
    (300_000, 1 << 20, 1 << 20),
    (1 << 20, 70_001, 33_333),
]


@pytest.mark.parametrize("written", [Written(), Written(delimiter=";", quote="'"), Written(encoding="latin-1")])
def test_every_byte_at_every_place_of_a_word_far_into_a_piece(tmp_path: Path, written: Written) -> None:
    """Where a parser looks at 8 or 16 bytes at once: each byte on its own, and eight times, at 24 places in a row."""
    record = b'some text,7,"a label, long"'
    lines = PLAIN * 24
    for code in range(256):
        byte = bytes([code])
        lines += [record[:place] + byte + record[place:] for place in range(24)] + [record[:4] + byte * 8 + record[4:]]
    data = b"\n".join(lines)
    readings = []
    for range_bytes, batch_bytes, pieces in PIECE_SIZES:
        with mock.patch.object(reader, "_PIECE_BYTES", pieces):
            schema = written.schema(quoted_newlines=False)
            text = written.text(data)
            readings.append(
                read_bytes(tmp_path, written.file(text), schema, range_bytes=range_bytes, batch_bytes=batch_bytes)
            )
    check(readings[0], expected_rows(text, written, quoted_newlines=False), text, written.quote)
    assert all(reading == readings[0] for reading in readings[1:])
