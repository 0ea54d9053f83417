"""Cells are found by counting each record's delimiters, whatever the bytes between them."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv import lines as csv_cells
from schemas.csv.lines import Records, find_cells, find_lines, replaced, take_columns
from schemas.csv.parse import join_fields
from schemas.errors import MillraceError


def found(
    data: bytes, width: int, positions: list[int] | None = None
) -> tuple[list[tuple[bytes, ...]], dict[int, int]]:
    """The rows of `width` fields, and the numbers of fields of the other lines."""
    cells, wrong = find_cells(find_lines(data, 0)[0], delimiter=",", quote='"', width=width)
    columns = take_columns(cells, range(width) if positions is None else positions)
    return list(zip(*(column.to_pylist() for column in columns.values()), strict=True)), wrong


def test_a_record_too_wide_does_not_make_up_for_one_too_narrow() -> None:
    assert found(b"a,b\nc,d,e,f\ng,h,i\n", 3) == ([(b"g", b"h", b"i")], {0: 2, 1: 4})
    assert found(b"g,h,i\nc,d,e,f\na,b\n", 3) == ([(b"g", b"h", b"i")], {1: 4, 2: 2})
    assert found(b"a,b\n,,,\n", 3) == ([], {0: 2, 1: 4})


def test_with_one_column_a_cell_is_a_line() -> None:
    assert found(b"a\n\nb\0\n,\n", 1) == ([(b"a",), (b"b\0",)], {2: 2})


def test_columns_come_in_the_order_asked_for() -> None:
    assert found(b"a,b,c\nd,e,f\n", 3, [2, 0])[0] == [(b"c", b"a"), (b"f", b"d")]


def test_no_records_have_no_cells() -> None:
    assert found(b"", 3) == ([], {})
    assert found(b"\n\n", 1) == ([], {})


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
    assert isinstance(changed, Records)
    assert not np.any(changed.starts[1:] <= changed.ends[:-1])
