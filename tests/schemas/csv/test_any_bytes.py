"""Any bytes give what Python's csv module reads, or are rejects, in whatever pieces they are read."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.csv import reader
from schemas.csv.file import binary_kind, open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.rejects import Reject
from schemas.spec.table import OFFSET, Schema
from tests.support.csv_oracle import Table, tables
from tests.support.csv_reading import TEXTS, Reading, Row, Written, expected_rows, read_bytes, schema_of

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


def _as_read(value: Any) -> Any:
    """A value without the white space around it, which a column of strings keeps; of nan, its text."""
    if isinstance(value, list):
        return [_as_read(part) for part in value]
    return value.strip(b" \t\n\v\f\r") if isinstance(value, bytes) else repr(value)


@settings(max_examples=300)
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


PIECE_LINES = 36_000  # of three values each
PLAIN = [b"a text of %03d byt,%012d.5,a label of %02d by" % (i, 37 * i, i % 17) for i in range(600)]
BASES = {
    "plain": PLAIN,
    "quoted": [b'"a, ""text"" of %03d","%012d.5",a label of %02d' % (i, 37 * i, i % 17) for i in range(600)],
    "long": [*PLAIN[:599], b"l" * 70_000 + b",1,y"],
}
DIALECTS = [Written(), Written(), Written(delimiter=";", quote="'"), Written(delimiter="\t", encoding="latin-1")]
# Ranges, blocks and pieces. The first reads all as one piece, the second as a job does.
PIECE_SIZES = [
    (1 << 30, 1 << 30, 1 << 30),
    (1 << 30, 8 << 20, 1 << 20),
    (300_000, 1 << 20, 1 << 20),
    (1 << 20, 70_001, 33_333),
]


def table(path: Path, schema: Schema, sizes: tuple[int, int, int]) -> tuple[pa.Table, list[Reject], int]:
    """All rows of a file, its rejects, and how many records were read."""
    range_bytes, batch_bytes, pieces = sizes
    batches, rejects, read = [], [], 0
    with mock.patch.object(reader, "_PIECE_BYTES", pieces):
        for part in split_ranges(open_csv(str(path), schema), range_bytes=range_bytes):
            for decoded in read_range(part, schema, batch_bytes=batch_bytes):
                batches.append(decoded.batch)
                rejects += decoded.rejects
                read += decoded.read
    return pa.Table.from_batches(batches).combine_chunks(), rejects, read


def rows(found: pa.Table) -> list[tuple[int, Row]]:
    values = [found.column(name).combine_chunks().flatten().to_pylist() for name in ("t", "n", "l")]
    return list(zip(found.column(OFFSET).to_pylist(), zip(*values, strict=True), strict=True))


def check_pieces(text: bytes, written: Written, *, quoted_newlines: bool) -> None:
    """The reader and the csv module agree, at every size; text behind a closing quote, which csv joins, is a reject."""
    schema = written.schema(quoted_newlines=quoted_newlines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        path.write_bytes(text)
        found, rejects, read = table(path, schema, PIECE_SIZES[0])
        for sizes in PIECE_SIZES[1:]:
            again = table(path, schema, sizes)
            assert again[0].equals(found)
            assert again[1:] == (rejects, read)
    strays = {r.offset for r in rejects if r.reason == "stray_quote" and r.raw.count(written.quote.encode()) > 1}
    records: dict[int, Any] = dict(rows(found)) | {r.offset: None for r in rejects}
    places = sorted(records)
    expected = expected_rows(text, written, quoted_newlines=quoted_newlines)
    assert read == len(records) == len(expected)
    assert [(p, records[p]) for p in places] == [(p, None if p in strays else row) for p, row in expected]
    assert all(text[r.offset : r.offset + len(r.raw)] == r.raw for r in rejects)


CHUNKS = [
    b"a",
    b"some text",
    b"seven b",
    b"eight by",
    b"\0",
    b"\0\0\0\0\0\0\0\0",
    b'"',
    b'""',
    b",",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b"\v",
    b"\x1a",
    b"\x1c",
    b"\x7f",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\x85",
    "é".encode(),
    "€".encode(),
    "😀".encode(),
    b"x" * 40_000,
]
CELL = st.lists(st.sampled_from(CHUNKS), max_size=4).map(b"".join)
QUOTED = CELL.map(lambda text: b'"' + text.replace(b'"', b'""') + b'"')
PIECE_TEXT = st.one_of(CELL, QUOTED)
NUMBER = st.sampled_from([b"1", b" 2.5 ", b"-1e3", b'"12345678.0"', b"1\0", b"1e400", b""])
RECORD = st.one_of(
    st.tuples(PIECE_TEXT, NUMBER, PIECE_TEXT),
    st.tuples(PIECE_TEXT, PIECE_TEXT, NUMBER, PIECE_TEXT),
    st.tuples(PIECE_TEXT, NUMBER),
    st.lists(PIECE_TEXT, max_size=6),
).map(b",".join)
ODD = st.lists(st.tuples(st.integers(1, PIECE_LINES), RECORD), min_size=1, max_size=8)
NUL = b"first te\0in,keyzz,7,b label of 16 by"  # four columns; three for who stops at the NUL


def with_odd(base: list[bytes], odd: list[tuple[int, bytes]], line_end: bytes) -> bytes:
    lines = base * (PIECE_LINES // len(base))
    for place, record in sorted(odd, reverse=True):
        lines.insert(place, record)
    text = line_end.join([*lines, b""])
    assert len(text) > 1 << 20
    assert 3 * len(lines) > 100_000
    return text


@pytest.mark.slow
@settings(max_examples=8)
@given(
    base=st.sampled_from([*BASES]),
    odd=ODD,
    line_end=st.sampled_from([b"\n", b"\n", b"\r\n"]),
    written=st.sampled_from(DIALECTS),
)
@example(base="plain", odd=[(PIECE_LINES, NUL)], line_end=b"\n", written=Written())
@example(base="plain", odd=[(30_000, b"first te\0in,7,b label\0of 16 by")], line_end=b"\n", written=Written())
@example(base="quoted", odd=[(30_000, b'"a\0""b\0, c\0",7,"\0"')], line_end=b"\r\n", written=Written())
@example(base="plain", odd=[(9, b"one,1"), (30_000, b"one,1,x,more")], line_end=b"\n", written=Written())
def test_a_line_is_read_the_same_alone_and_anywhere_in_a_file(
    base: str, odd: list[tuple[int, bytes]], line_end: bytes, written: Written
) -> None:
    check_pieces(written.text(with_odd(BASES[base], odd, line_end)), written, quoted_newlines=False)


@pytest.mark.slow
@settings(max_examples=5)
@given(base=st.sampled_from([*BASES]), odd=ODD, line_end=st.sampled_from([b"\n", b"\n", b"\r\n"]))
@example(base="plain", odd=[(PIECE_LINES, NUL)], line_end=b"\n")
@example(base="quoted", odd=[(30_000, b'"first\n""te\0in""\r\n",7,b label\0of 16 by')], line_end=b"\n")
def test_records_with_quoted_newlines_are_those_of_the_csv_module_at_any_place(
    base: str, odd: list[tuple[int, bytes]], line_end: bytes
) -> None:
    written = Written()
    check_pieces(written.text(with_odd(BASES[base], odd, line_end)), written, quoted_newlines=True)


@pytest.mark.parametrize("written", DIALECTS[1:], ids=["comma", "semicolon", "tab, latin-1"])
def test_every_byte_at_every_place_of_a_word_far_into_a_piece(written: Written) -> None:
    """Where a parser looks at 8 or 16 bytes at once: each byte on its own, and eight times, at 24 places in a row."""
    record = b'some text,7,"a label, long"'
    lines = PLAIN * 24
    for code in range(256):
        byte = bytes([code])
        lines += [record[:place] + byte + record[place:] for place in range(24)] + [record[:4] + byte * 8 + record[4:]]
    check_pieces(written.text(b"\n".join(lines)), written, quoted_newlines=False)


@pytest.mark.parametrize("range_bytes", [50_000, 1 << 30])
def test_a_record_of_another_width_is_rejected_though_it_holds_a_nul(tmp_path: Path, range_bytes: int) -> None:
    wide = b"first te\0in,keyzz,b label of 16 by,b label of 16 by\n"
    right = b"first te\0in,keyzz,b label\0of 16 by\n"
    good = b"".join(b"a text of 16 byt,a key of %06d...,a label of 16 by\n" % i for i in range(12_000))
    schema = schema_of(header="none", columns=TEXTS)
    reading = read_bytes(tmp_path, good + wide + right, schema, range_bytes=range_bytes, batch_bytes=8 << 20)
    assert reading.reasons == [(len(good), "too_many_columns", None)]
    assert reading.rejects[0].raw == wide[:-1]
    assert (len(reading.rows), reading.read) == (12_001, 12_002)
    assert [reading.rows[-1][name] for name in TEXTS] == right[:-1].split(b",")
