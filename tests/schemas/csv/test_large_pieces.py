"""Unusual records anywhere among very many plain ones, in pieces of over 1 MB and 100,000 values.

What becomes of a record must not depend on what goes before it, nor on how the file is cut.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.csv import reader
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.rejects import Reject
from schemas.spec.table import OFFSET, Schema
from tests.support.csv_reading import TEXTS, Row, Written, expected_rows, read_bytes, schema_of

LINES = 36_000  # of three values each
PLAIN = [b"a text of %03d byt,%012d.5,a label of %02d by" % (i, 37 * i, i % 17) for i in range(600)]
BASES = {
    "plain": PLAIN,
    "quoted": [b'"a, ""text"" of %03d","%012d.5",a label of %02d' % (i, 37 * i, i % 17) for i in range(600)],
    "long": [*PLAIN[:599], b"l" * 70_000 + b",1,y"],
}
DIALECTS = [Written(), Written(), Written(delimiter=";", quote="'"), Written(delimiter="\t", encoding="latin-1")]
# Ranges, blocks and pieces. The first reads all as one piece, the second as a job does.
SIZES = [
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


def check(text: bytes, written: Written, *, quoted_newlines: bool) -> None:
    """The reader and the csv module agree, at every size; text behind a closing quote, which csv joins, is a reject."""
    schema = written.schema(quoted_newlines=quoted_newlines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        path.write_bytes(text)
        found, rejects, read = table(path, schema, SIZES[0])
        for sizes in SIZES[1:]:
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
TEXT = st.one_of(CELL, QUOTED)
NUMBER = st.sampled_from([b"1", b" 2.5 ", b"-1e3", b'"12345678.0"', b"1\0", b"1e400", b""])
RECORD = st.one_of(
    st.tuples(TEXT, NUMBER, TEXT),
    st.tuples(TEXT, TEXT, NUMBER, TEXT),
    st.tuples(TEXT, NUMBER),
    st.lists(TEXT, max_size=6),
).map(b",".join)
ODD = st.lists(st.tuples(st.integers(1, LINES), RECORD), min_size=1, max_size=8)
NUL = b"first te\0in,keyzz,7,b label of 16 by"  # four columns; three for who stops at the NUL


def with_odd(base: list[bytes], odd: list[tuple[int, bytes]], line_end: bytes) -> bytes:
    lines = base * (LINES // len(base))
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
@example(base="plain", odd=[(LINES, NUL)], line_end=b"\n", written=Written())
@example(base="plain", odd=[(30_000, b"first te\0in,7,b label\0of 16 by")], line_end=b"\n", written=Written())
@example(base="quoted", odd=[(30_000, b'"a\0""b\0, c\0",7,"\0"')], line_end=b"\r\n", written=Written())
@example(base="plain", odd=[(9, b"one,1"), (30_000, b"one,1,x,more")], line_end=b"\n", written=Written())
def test_a_line_is_read_the_same_alone_and_anywhere_in_a_file(
    base: str, odd: list[tuple[int, bytes]], line_end: bytes, written: Written
) -> None:
    check(written.text(with_odd(BASES[base], odd, line_end)), written, quoted_newlines=False)


@pytest.mark.slow
@settings(max_examples=5)
@given(base=st.sampled_from([*BASES]), odd=ODD, line_end=st.sampled_from([b"\n", b"\n", b"\r\n"]))
@example(base="plain", odd=[(LINES, NUL)], line_end=b"\n")
@example(base="quoted", odd=[(30_000, b'"first\n""te\0in""\r\n",7,b label\0of 16 by')], line_end=b"\n")
def test_records_with_quoted_newlines_are_those_of_the_csv_module_at_any_place(
    base: str, odd: list[tuple[int, bytes]], line_end: bytes
) -> None:
    written = Written()
    check(written.text(with_odd(BASES[base], odd, line_end)), written, quoted_newlines=True)


@pytest.mark.parametrize("written", DIALECTS[1:], ids=["comma", "semicolon", "tab, latin-1"])
def test_every_byte_at_every_place_of_a_word_far_into_a_piece(written: Written) -> None:
    """Where a parser looks at 8 or 16 bytes at once: each byte on its own, and eight times, at 24 places in a row."""
    record = b'some text,7,"a label, long"'
    lines = PLAIN * 24
    for code in range(256):
        byte = bytes([code])
        lines += [record[:place] + byte + record[place:] for place in range(24)] + [record[:4] + byte * 8 + record[4:]]
    check(written.text(b"\n".join(lines)), written, quoted_newlines=False)


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
