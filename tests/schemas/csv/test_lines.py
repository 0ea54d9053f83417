"""Record boundaries, and a few unusual lines among very many plain ones."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from schemas.csv.lines import START, QuotedScanner, find_lines
from tests.support.csv_reading import TEXTS, read_bytes, schema_of


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n\na\n\nb\n", [b"a", b"b"]),
        (b"a\r\n\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\nb\r", [b"a", b"b"]),
        (b"\ra\rb\r\r\n\r", [b"\ra\rb"]),
    ],
)
def test_lines_that_are_not_empty(data: bytes, lines: list[bytes]) -> None:
    records, _ = find_lines(data, 0)
    assert [records.raw(i) for i in range(len(records))] == lines


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        (b"a,b\nc,d\n", [3, 7]),
        (b'"a\nb",c\nd', [7]),
        (b'"a""\n""b",c\rd\n', [11, 13]),
        (b'a"b\nc"d\n', [3, 7]),
        (b'"a"b"\nc\n', [5, 7]),
        (b'a,"b\n', []),
    ],
)
def test_record_ends_outside_quotes(data: bytes, ends: list[int]) -> None:
    scanner = QuotedScanner(delimiter=",", quote='"')
    assert scanner.boundaries(data, START, 0)[0].tolist() == ends


ODD = {
    5_000: b'x"y,"2,3',  # a stray quote: rejected
    5_001: b'x"y"z,2,3',  # quotes that are plain text
    5_002: b'x"y,2,3',
    60_000: b'"a,b",2,3',  # a quoted field
    60_001: b'"a""b" ,2,3',
    70_000: b"1,2",
    80_000: b"1\r2,2,3",
    99_999: b'1,2,"3',
}


@pytest.mark.parametrize("range_bytes", [100_000, 1 << 30])
def test_a_stray_quote_and_a_quoted_field_far_apart_cost_no_row(tmp_path: Path, range_bytes: int) -> None:
    lines = [ODD.get(i, b"%d,b,c" % i) for i in range(100_000)]
    reading = read_bytes(
        tmp_path,
        b"\n".join(lines),
        schema_of(header="none", columns=TEXTS),
        range_bytes=range_bytes,
        batch_bytes=300_000,
    )
    assert reading.read == 100_000
    assert [(r.raw, r.reason) for r in reading.rejects] == [
        (ODD[5_000], "unterminated_quote"),
        (ODD[5_002], "stray_quote"),
        (ODD[70_000], "too_few_columns"),
        (ODD[80_000], "stray_carriage_return"),
        (ODD[99_999], "unterminated_quote"),
    ]
    expected = [
        next(csv.reader([line.decode()]))
        for i, line in enumerate(lines)
        if i not in {5_000, 5_002, 70_000, 80_000, 99_999}
    ]
    assert [row["a"].decode() for row in reading.rows] == [fields[0] for fields in expected]


def test_many_records_with_quoted_newlines_are_those_of_the_csv_module(tmp_path: Path) -> None:
    draw = random.Random(3)
    fields = ["x", "", "one\ntwo", 'a "b"', "\r\n", "p,q", "é" * 50]
    labels = ["x", 'a "b"', "p,q", "é" * 50]  # of a vocabulary, which holds no line end
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[f"r{i}", draw.choice(fields), draw.choice(labels)] for i in range(5_000)])
    schema = schema_of(header="none", columns=TEXTS, quoted_newlines=True)
    for text_value in (text.getvalue(), text.getvalue() + 'odd"one,x,y\r\n'):  # one stray quote: the scalar path
        reading = read_bytes(tmp_path, text_value.encode(), schema, batch_bytes=4_000)
        rows = [tuple(row[name].decode() for name in TEXTS) for row in reading.rows]
        assert rows == [(a, b, c.strip()) for a, b, c in csv.reader(io.StringIO(text_value, newline=""))]
        assert reading.rejects == []
