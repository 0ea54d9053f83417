"""Raw columns written as lines are read back by the reader to the same values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv import text
from schemas.csv.file import open_csv
from schemas.csv.reader import read_range
from schemas.csv.rows import CsvRows
from schemas.spec.table import CsvOptions, Schema
from tests.support.csv_reading import table_schema

SCHEMA = """\
name: x
format: csv
csv: {header: present, missing: %s, delimiter: "%s", quote: "%s", quoted_newlines: true}
features:
  - {name: a, kind: numeric, missing: 0.0}
  - {name: v, columns: [v0, v2], kind: numeric, missing: 0.0}
  - {name: s, kind: category, values: [x], missing: x}
  - {name: t, kind: text}
label: {name: y, kind: category, values: ["0", "1"]}
"""

floats = st.floats(width=32, allow_infinity=False, allow_nan=True)
strings = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b'"', b",", b"\n", b"\r\n", b"\x00", b' "a" ', b"?"]))
rows = st.lists(st.tuples(floats, floats, floats, floats, strings, strings), min_size=1, max_size=8)


def schema_of(missing: str = '["?", ""]', delimiter: str = ",", quote: str = '\\"') -> Schema:
    return table_schema(SCHEMA % (missing, delimiter, quote))


def read_back(path: Path, schema: Schema) -> tuple[list, list]:
    """The rows as the reader has them, and its rejects."""
    file = open_csv(str(path), schema, label="optional")
    batches = [d for part in CsvRows.plan_ranges(file, range_bytes=1 << 20) for d in read_range(part, schema)]
    return [row for d in batches for row in d.batch.to_pylist()], [reject for d in batches for reject in d.rejects]


def write(path: Path, schema: Schema, given_rows: list) -> None:
    a, *v, s, t = zip(*given_rows, strict=True)
    csv = schema.csv
    cells = [
        text.number_cells(np.array(a, np.float32), csv),
        text.number_cells(np.array(v, np.float32).T, csv),
        text.string_cells(np.array([*s, b""], object)[:-1], csv),
        text.string_cells(np.array([*t, b""], object)[:-1], csv),
    ]
    path.write_bytes(text.header_line(["a", "v0", "v1", "v2", "s", "t"], csv) + text.lines(cells, csv)[0])


def same(one: float, other: float) -> bool:
    return (np.isnan(one) and np.isnan(other)) or np.float32(one) == np.float32(other)


@pytest.mark.parametrize(
    ("missing", "delimiter", "quote"),
    [('["?", ""]', ",", '\\"'), ("[-999]", ";", "'"), ('["1", "0", "-0"]', "|", '\\"')],
)
@given(given_rows=rows)
def test_every_row_comes_back_as_it_was(tmp_path_factory, missing, delimiter, quote, given_rows):
    schema = schema_of(missing, delimiter, quote)
    path = tmp_path_factory.mktemp("text") / "x.csv"
    write(path, schema, given_rows)
    found, rejects = read_back(path, schema)
    offsets = {row["_offset"] for row in found} | {reject.offset for reject in rejects}
    assert len(offsets) == len(given_rows)  # each is a row, or rejected for itself
    assert {reject.reason for reject in rejects} <= {"not_utf8"}  # which the model rejects, too
    kept = [r for r in given_rows if all(_is_utf8(value) for value in r[4:])]
    assert len(found) == len(kept)
    for (a, *v, s, t), row in zip(kept, found, strict=True):
        assert same(a, row["a"][0])
        assert all(same(x, y) for x, y in zip(v, row["v"], strict=True))
        assert (row["s"], row["t"]) == ([s], [t])


@given(given_rows=st.lists(st.tuples(strings, strings), min_size=1, max_size=8), cut=st.integers(0, 200))
def test_lines_are_split_again_and_a_cut_one_is_no_whole_line(given_rows, cut):
    csv = CsvOptions()
    columns = [text.string_cells(list(column), csv) for column in zip(*given_rows, strict=True)]
    data, starts = text.lines(columns, csv, checked=True)
    found = list(text.records(data, csv))
    assert [tuple(cells[:2]) for _, cells in found] == given_rows
    at_once = [column.to_pylist() for column in text.columns(data, csv, 3)]
    assert list(zip(*at_once, strict=True)) == [tuple(cells) for _, cells in found]
    assert all(text.is_whole(line) for line, _ in found)
    assert text.whole_records(data, csv) == len(data)
    cut = min(cut, len(data))
    assert text.whole_records(data[:cut], csv) == max(start for start in starts.tolist() if start <= cut)
    damaged = bytearray(data)
    damaged[cut % len(data)] ^= 1
    assert text.whole_records(bytes(damaged), csv) <= max(s for s in starts.tolist() if s <= cut % len(data))


def test_infinite_numbers_are_rejected_by_every_reader(tmp_path):
    schema = schema_of()
    write(tmp_path / "x.csv", schema, [(np.inf, 1, 2, 3, b"x", b""), (1, 1, -np.inf, 3, b"x", b"")])
    found, rejects = read_back(tmp_path / "x.csv", schema)
    assert (found, [reject.reason for reject in rejects]) == ([], ["not_a_number"] * 2)


def test_every_float_is_written_so_that_it_is_read_as_itself():
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    cells = text.number_cells(values, CsvOptions()).to_pylist()
    assert (np.array([float(cell) for cell in cells]).astype(np.float32) == values).all()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
