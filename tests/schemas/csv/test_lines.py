"""Where records and cells begin and end."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv import lines as csv_cells
from schemas.csv.lines import CsvRecords, find_cells, find_lines, replaced, take_columns
from schemas.csv.parse import join_fields, split_fields
from schemas.errors import MillraceError
from tests.support.csv_reading import TEXTS, read_bytes, schema_of

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


def found(data: bytes, width: int) -> tuple[list[tuple[bytes, ...]], dict[int, int]]:
    """The rows of `width` fields, and the numbers of fields of the other lines."""
    cells, wrong = find_cells(find_lines(data, 0)[0], delimiter=",", quote='"', width=width)
    columns = take_columns(cells, range(width))
    return list(zip(*(column.to_pylist() for column in columns.values()), strict=True)), wrong


def test_a_record_too_wide_does_not_make_up_for_one_too_narrow() -> None:
    assert found(b"a,b\nc,d,e,f\ng,h,i\n", 3) == ([(b"g", b"h", b"i")], {0: 2, 1: 4})
    assert found(b"g,h,i\nc,d,e,f\na,b\n", 3) == ([(b"g", b"h", b"i")], {1: 4, 2: 2})
    assert found(b"a,b\n,,,\n", 3) == ([], {0: 2, 1: 4})


def test_with_one_column_a_cell_is_a_line() -> None:
    assert found(b"a\n\nb\0\n,\n", 1) == ([(b"a",), (b"b\0",)], {2: 2})


CELLS = st.lists(st.sampled_from([b"a", b"\0", b",", b'"', b'""', b" ", b"\xff", b"12345678"]), max_size=4).map(
    b"".join
)
ROWS = st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=6)


@given(ROWS, st.integers(2, 4))
def test_what_a_plain_writer_writes_is_found_again(rows: list[list[bytes]], width: int) -> None:
    plain = [all(b"," not in cell and b'"' not in cell for cell in row) and any(row) for row in rows]
    lines = [b",".join(row) if p else join_fields(row, ",", '"') for row, p in zip(rows, plain, strict=True)]
    assert found(b"\n".join(lines), width) == (
        [tuple(row) for row in rows if len(row) == width],
        {i: len(row) for i, row in enumerate(rows) if len(row) != width},
    )


def test_more_bytes_than_positions_can_count_are_refused() -> None:
    with mock.patch.object(csv_cells, "_MAX_BYTES", 10), pytest.raises(MillraceError, match="11 bytes of CSV at once"):
        found(b"a,b\nc,d\ne,f", 2)


@given(
    st.lists(st.binary(min_size=1).map(lambda b: b.replace(b"\n", b"x").replace(b"\r", b"y")), max_size=6), st.data()
)
def test_records_are_replaced_in_their_places(lines: list[bytes], data: st.DataObject) -> None:
    records, _ = find_lines(b"\n\n" + b"\r\n".join(lines) + b"\r\n\n", 7)
    places = data.draw(st.sets(st.integers(0, len(lines) - 1))) if lines else set()
    texts = {i: data.draw(st.sampled_from([b"", b"z", b"longer than it was"])) for i in places}
    changed = replaced(records, texts)
    assert [changed.raw(i) for i in range(len(changed))] == [t for i, r in enumerate(lines) if (t := texts.get(i, r))]
    assert isinstance(changed, CsvRecords)
    assert not np.any(changed.starts[1:] <= changed.ends[:-1])


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"", [b""]),
        (b'"a,b",c', [b"a,b", b"c"]),
        (b'"a""b"', [b'a"b']),
        (b'a"b",c"', [b'a"b"', b'c"']),
        (b' "a",b', [b' "a"', b"b"]),
        (b'"a"b"c,d', "stray_quote"),
        (b'"a" ,b', [b"a ", b"b"]),
        (b"a\x00b,\xff", [b"a\x00b", b"\xff"]),
        (b'"a\rb",c', [b"a\rb", b"c"]),
        (b'1,"a,2', "unterminated_quote"),
        (b'"a""', "unterminated_quote"),
        (b'"a"\rb,c', "stray_carriage_return"),
    ],
)
def test_fields(record: bytes, fields: list[bytes] | str) -> None:
    assert split_fields(record, ",", '"') == fields


@given(st.lists(st.sampled_from([b",", b'"', b'""', b"a", b" ", b"\xe9", b";"])).map(b"".join), st.sampled_from(",; "))
def test_fields_are_those_of_the_csv_module(record: bytes, delimiter: str) -> None:
    fields = split_fields(record, delimiter, '"')
    if isinstance(fields, list):
        expected = next(csv.reader([record.decode("latin-1")], delimiter=delimiter), [])
        assert fields == [field.encode("latin-1") for field in expected or [""]]


@given(st.lists(st.binary(), min_size=1))
def test_joined_fields_split_again(fields: list[bytes]) -> None:
    assert split_fields(join_fields(fields, ",", '"'), ",", '"') == fields
