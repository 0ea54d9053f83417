"""Corrected records, and columns that are handed through as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from schemas.csv import reader
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.csv.rows import csv_from_manifest, decode_records
from schemas.errors import UsageError
from schemas.formats import row_format
from schemas.rows import Decoded, cell_field
from schemas.spec.table import OFFSET, Schema
from tests.support.csv_reading import schema_of, table_schema

FEATURES = (
    {"name": "id", "kind": "key"},
    {"name": "age", "kind": "numeric"},
    {"name": "job", "kind": "category", "hash_buckets": 9},
)
LABEL = {"name": "y", "kind": "category", "values": ["no", "yes"]}
SPLIT = {"by": ["id"], "train": 0.5, "eval": 0.5, "test": 0}
LINES = ["k1,39,clerk,no", 'k2,40,"smith, ""B""",yes', "k3,7,Köln,no", "k4,8, ,yes", "k5,old,clerk,no"]
HEADER = "id,age,job,y"


def schema(**csv: object) -> Schema:
    return schema_of(FEATURES, label=LABEL, split=SPLIT, **csv)


def of_file(path: Path, declared: Schema) -> Decoded:
    """The file as the job reads it."""
    (part,) = split_ranges(open_csv(str(path), declared), range_bytes=1 << 20)
    (decoded,) = read_range(part, declared, with_split=True)
    return decoded


def again(path: Path, declared: Schema, raws: list[bytes]) -> Decoded:
    """Records given one by one, at the places 100, 200, ..., after the file is gone."""
    found = open_csv(str(path), declared)
    path.unlink()
    file = csv_from_manifest(str(path), declared, encoding=found.codec, header=found.header)
    return decode_records(file, declared, raws, [100 * (i + 1) for i in range(len(raws))])


@pytest.mark.parametrize("piece_bytes", [1, 40, 1 << 20])
@pytest.mark.parametrize(
    ("header", "lines", "encoding", "csv"),
    [
        (HEADER, LINES, "utf-8", {}),
        ("job,y,id,age", ["clerk,no,k1,39", '"a,b",yes,k2,4'], "utf-8", {}),
        (HEADER, LINES, "latin-1", {"encoding": "latin-1"}),
        (HEADER, LINES, "utf-16", {}),
        (HEADER, [*LINES, 'k6,1,"two\nlines",no', 'k7,2,"cr\r\nlf",yes'], "utf-8", {"quoted_newlines": True}),
        (None, LINES, "utf-8", {"columns": ("id", "age", "job", "y"), "header": "none"}),
        (HEADER.replace(",", ";"), [x.replace(",", ";") for x in LINES], "utf-8", {"delimiter": ";"}),
    ],
    ids=["plain", "reordered", "latin-1", "utf-16", "quoted newlines", "no header", "semicolons"],
)
def test_a_record_read_alone_is_the_same_as_in_its_file(
    tmp_path, monkeypatch, header, lines, encoding, csv, piece_bytes
):
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join([*([header] if header else []), *lines, ""]).encode(encoding))
    declared = schema(**csv)
    expected = of_file(path, declared)
    monkeypatch.setattr(reader, "_PIECE_BYTES", piece_bytes)
    raws = [line.encode("latin-1" if encoding == "latin-1" else "utf-8") for line in lines]
    got = again(path, declared, raws)
    assert expected.read == got.read == len(lines)
    names = [n for n in expected.batch.schema.names if n != OFFSET]
    assert got.batch.select(names).equals(expected.batch.select(names))
    assert [(r.reason, r.column, r.detail) for r in got.rejects] == [
        (r.reason, r.column, r.detail) for r in expected.rejects
    ]
    places = {*np.asarray(got.batch.column(OFFSET)).tolist(), *(r.offset for r in got.rejects)}
    assert places == {100 * (i + 1) for i in range(len(lines))}
    for reject in got.rejects:
        assert reject.raw == raws[reject.offset // 100 - 1]


@pytest.mark.parametrize(
    ("raw", "quoted", "reason"),
    [
        (b"", False, "not_one_record"),
        (b"\r\n", False, "not_one_record"),
        (b"k1,39,clerk,no\nk2,40,clerk,no", False, "not_one_record"),
        (b'k1,39,"two\nlines",no', False, "not_one_record"),
        (b"k1,39,clerk,no\nk2,40,clerk,no", True, "not_one_record"),
        (b'k1,39,"open,no', False, "unterminated_quote"),
        (b'k1,39,"open,no', True, "unterminated_quote"),
        (b"k1,39,cl\rerk,no", False, "stray_carriage_return"),
        (b"k1," + b"9" * 200 + b",clerk,no", False, "record_too_long"),
        (b"k1,39,clerk,no\r\n", False, None),
        (b'\xef\xbb\xbfk1,39,"two\nlines",no', True, None),
    ],
)
def test_bytes_that_are_no_record_or_several_are_rejected_alone(raw, quoted, reason):
    declared = schema(quoted_newlines=quoted)
    file = csv_from_manifest("a.csv", declared, encoding="utf-8", header=tuple(HEADER.split(",")))
    got = decode_records(file, declared, [b"k8,1,a,no", raw, b"k9,2,b,yes"], [5, 6, 7], max_record_bytes=100)
    assert [(r.offset, r.reason, r.raw) for r in got.rejects] == ([(6, reason, raw)] if reason else [])
    assert np.asarray(got.batch.column(OFFSET)).tolist() == ([5, 7] if reason else [5, 6, 7])
    assert got.read == 3


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
NAMES = b"note,size cm,p0,p1,y\n"


def cells(folder: Path, schema_text: str, data: bytes, *names: str) -> list[list[bytes]]:
    """The cells of the rows that are accepted, by name."""
    schema = table_schema(schema_text)
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
    data = NAMES + b'"a,\xe9", 1.50 ,2,3,yes\nx,bad,0,0,no\n,2,4,5,what?\n'
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
        (HEADED, NAMES + b"x,1,2,3,no\n", "weight", r"has no column 'weight'; it has 'note', 'size cm'"),
        (HEADED, NAMES + b"x,1,2,3,no\n", "parts", r"'parts' is read from 2 columns"),
        (HEADED, b"note,size cm,p0,p1\nx,1,2,3\n", "y", r"has no column 'y'"),
        (NUMBERED, b"1,x,2\n", "y", r"has no column 'y'; it has '0', '2', '3'"),
        (NUMBERED, b"1,no,x,2\n", "4", r"has no column '4'"),
    ],
)
def test_a_name_that_means_no_column(tmp_path, text, data, name, said):
    with pytest.raises(UsageError, match=said):
        cells(tmp_path, text, data, name)
