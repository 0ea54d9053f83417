"""Cells that are handed through as they stand in the file: which column a name means, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.formats import row_format
from schemas.rows import cell_field
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema

HEADED = """\
name: t
format: csv
csv: {header: present, encoding: latin-1}
features:
  - {name: size, column: "size cm", kind: numeric}
  - {name: note, kind: ignore}
  - {name: parts, columns: [p0, p1], kind: numeric}
label: {name: y, kind: category, values: ["no", "yes"]}
"""
NUMBERED = """\
name: t
format: csv
csv: {header: none, num_columns: 4}
features:
  - {name: size, column: 0, kind: numeric}
  - {name: note, column: 2, kind: ignore}
  - {name: last, column: 3, kind: numeric}
label: {name: y, column: 1, kind: category, values: ["no", "yes"]}
"""
HEADER = b"note,size cm,p0,p1,y\n"


def cells(folder: Path, schema_text: str, data: bytes, *names: str) -> list[list[bytes]]:
    """The cells of the rows that are accepted, by name."""
    schema = parse_schema(schema_text.encode(), "t.yaml")
    assert isinstance(schema, Schema)
    (folder / "t.csv").write_bytes(data)
    form = row_format(schema)
    file = form.open_file(str(folder / "t.csv"), schema, label="optional", max_input_ratio=10)
    found: list[list[bytes]] = [[] for _ in names]
    for part in form.plan_ranges(file, range_bytes=1 << 20):
        for decoded in form.read_range(part, schema, with_split=False, cells=names):
            for i in range(len(names)):
                found[i] += decoded.batch.column(cell_field(i).name).to_pylist()
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("size cm", [b" 1.50 ", b"2"]),
        ("size", [b" 1.50 ", b"2"]),  # by the feature's name
        ("note", ["a,é".encode(), b""]),
        ("y", [b"yes", b"what?"]),  # a label that is not read, and so not judged
        ("p1", [b"3", b"5"]),
    ],
)
def test_cells_as_they_stand_of_the_rows_that_are_accepted(tmp_path, name, expected):
    data = HEADER + b'"a,\xe9", 1.50 ,2,3,yes\nx,bad,0,0,no\n,2,4,5,what?\n'
    assert cells(tmp_path, HEADED, data, name) == [expected]


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"1,no,x,2\n", "2", b"x"),
        (b"1,no,x,2\n", "note", b"x"),
        (b"1,no,x,2\n", "y", b"no"),
        (b"1,x,2\n", "2", b"x"),  # without the label, columns keep their names
        (b"1,x,2\n", "last", b"2"),
    ],
)
def test_columns_without_a_header_go_by_their_numbers(tmp_path, data, name, expected):
    assert cells(tmp_path, NUMBERED, data, name) == [[expected]]


@pytest.mark.parametrize(
    ("text", "data", "name", "said"),
    [
        (HEADED, HEADER + b"x,1,2,3,no\n", "weight", r"has no column 'weight'; it has 'note', 'size cm'"),
        (HEADED, HEADER + b"x,1,2,3,no\n", "parts", r"'parts' is read from 2 columns"),
        (HEADED, b"note,size cm,p0,p1\nx,1,2,3\n", "y", r"has no column 'y'"),
        (NUMBERED, b"1,x,2\n", "y", r"has no column 'y'; it has '0', '2', '3'"),
        (NUMBERED, b"1,no,x,2\n", "4", r"has no column '4'"),
    ],
)
def test_a_name_that_means_no_column(tmp_path, text, data, name, said):
    with pytest.raises(UsageError, match=said):
        cells(tmp_path, text, data, name)
