"""Rows: what each format promises, single records and cells as they are, and columns written as lines."""

from __future__ import annotations

import csv
import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv import reader, text
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.csv.rows import csv_from_manifest, decode_records
from schemas.csv.values import missing_tokens
from schemas.errors import MillraceError, UsageError
from schemas.formats import ROW_FORMATS, row_format
from schemas.rows import AnyRowFormat, Decoded, RowFile, batch_schema, cell_field
from schemas.spec.table import OFFSET, SPLIT, CsvOptions, RowFormatName, Schema, raw_columns
from schemas.spec.words import canonical
from tests.support.csv_reading import read_all, schema_of, table_schema

SCHEMA = """\
name: people
format: {format}
features:
  - {{name: id, kind: key}}
  - {{name: age, kind: numeric, transform: z_score}}
  - {{name: city, kind: category, hash_buckets: 9}}
label: {{name: y, kind: category}}
"""
# Of each format, a file of rows with two that are rejected for their age, which is 'old'.
FILES = {
    "csv": ["id,age,city,y", *(f"k{i},{i},ab,yes" if i % 50 else f"k{i},old,ab,no" for i in range(1, 101))],
}


@pytest.fixture(params=sorted(ROW_FORMATS))
def opened(request, tmp_path) -> tuple[AnyRowFormat, RowFile, Schema]:
    path: Path = tmp_path / f"raw.{request.param}"
    path.write_text("".join(f"{line}\n" for line in FILES[request.param]))
    schema = table_schema(SCHEMA.format(format=request.param))
    rows = row_format(schema)
    return rows, rows.open_file(str(path), schema, label="required", max_input_ratio=500.0), schema


def test_the_table_holds_what_a_schema_may_say():
    assert set(ROW_FORMATS) == set(get_args(RowFormatName))


@pytest.mark.parametrize("range_bytes", [50, 1 << 20])
def test_each_record_is_in_one_range_with_its_place(opened, range_bytes):
    rows, file, schema = opened
    parts = rows.plan_ranges(file, range_bytes=range_bytes)
    assert sum(part.covers for part in parts) == file.covers
    decoded_parts = [d for part in parts for d in rows.read_range(part, schema, with_split=True)]
    assert (sum(d.read for d in decoded_parts), sum(len(d.rejects) for d in decoded_parts)) == (100, 2)
    data = Path(file.path).read_bytes()
    for decoded in decoded_parts:
        assert decoded.batch.schema == batch_schema(raw_columns(schema), with_split=True)
        ids = decoded.batch.column("id").flatten().to_pylist()
        for offset, key in zip(decoded.batch.column(OFFSET).to_pylist(), ids, strict=True):
            assert key in data[offset:].partition(b"\n")[0]
        for reject in decoded.rejects:
            assert data[reject.offset :].startswith(reject.raw + b"\n")
            assert b"old" in reject.raw
            assert len(reject.raw) >= file.min_record_bytes - 1


def test_single_records_are_read_and_decoded_as_they_were_in_the_file(opened):
    rows, file, schema = opened
    (part,) = rows.plan_ranges(file, range_bytes=1 << 20)
    (whole,) = rows.read_range(part, schema, with_split=True)
    offsets = whole.batch.column(OFFSET).to_pylist() + [r.offset for r in whole.rejects]
    raws = rows.read_records(file, schema, offsets)
    file = rows.file_from_manifest(file.path, schema, encoding=file.codec, header=file.header)
    again = rows.decode_records(file, schema, [raws[o] for o in sorted(raws)], sorted(raws))
    assert again.batch == whole.batch
    assert (again.read, again.rejects) == (whole.read, whole.rejects)


def test_an_offset_that_begins_no_record_is_refused(opened):
    rows, file, schema = opened
    with pytest.raises(MillraceError, match="no record begins at byte"):
        rows.read_records(file, schema, [file.size - 3])


def test_a_record_made_of_cells_is_read_as_these_cells(opened):
    rows, file, schema = opened
    cells = {"id": (b'a "quoted", key',), "age": (b"7.5",), "city": ("Köln".encode(),), "y": (b"yes",)}
    decoded = rows.decode_records(file, schema, [rows.encode_record(file, schema, cells)], [0])
    assert decoded.rejects == []
    (row,) = decoded.batch.drop_columns([OFFSET, SPLIT]).to_pylist()
    assert row == {name: [7.5] if name == "age" else list(cell) for name, cell in cells.items()}


def test_files_and_ranges_travel_to_workers(opened):
    rows, file, _ = opened
    parts = rows.plan_ranges(file, range_bytes=1 << 20)
    assert pickle.loads(pickle.dumps(parts)) == list(parts)


FEATURES = (
    {"name": "id", "kind": "key"},
    {"name": "age", "kind": "numeric"},
    {"name": "job", "kind": "category", "hash_buckets": 9},
)
LABEL = {"name": "y", "kind": "category", "values": ["no", "yes"]}
BY_ID = {"by": ["id"], "train": 0.5, "eval": 0.5, "test": 0}
LINES = ["k1,39,clerk,no", 'k2,40,"smith, ""B""",yes', "k3,7,Köln,no", "k4,8, ,yes", "k5,old,clerk,no"]
HEADER = "id,age,job,y"


def schema(**csv: object) -> Schema:
    return schema_of(FEATURES, label=LABEL, split=BY_ID, **csv)


def of_file(path: Path, declared: Schema) -> Decoded:
    """The file as the job reads it."""
    (part,) = split_ranges(open_csv(str(path), declared), range_bytes=1 << 20)
    (decoded,) = read_range(part, declared, with_split=True)
    return decoded


def again(path: Path, declared: Schema, raws: list[bytes]) -> Decoded:
    """Records given one by one, at the places 100, 200, ..., after the file is gone."""
    original = open_csv(str(path), declared)
    path.unlink()
    file = csv_from_manifest(str(path), declared, encoding=original.codec, header=original.header)
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
    columns: list[list[bytes]] = [[] for _ in names]
    for part in form.plan_ranges(file, range_bytes=1 << 20):
        for decoded in form.read_range(part, schema, with_split=False, cells=names):
            for i in range(len(names)):
                columns[i] += decoded.batch.column(cell_field(i).name).to_pylist()
    return columns


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
    ("text", "data", "name", "message"),
    [
        (HEADED, NAMES + b"x,1,2,3,no\n", "weight", r"has no column 'weight'; it has 'note', 'size cm'"),
        (HEADED, NAMES + b"x,1,2,3,no\n", "parts", r"'parts' is read from 2 columns"),
        (HEADED, b"note,size cm,p0,p1\nx,1,2,3\n", "y", r"has no column 'y'"),
        (NUMBERED, b"1,x,2\n", "y", r"has no column 'y'; it has '0', '2', '3'"),
        (NUMBERED, b"1,no,x,2\n", "4", r"has no column '4'"),
    ],
)
def test_a_name_that_means_no_column(tmp_path, text, data, name, message):
    with pytest.raises(UsageError, match=message):
        cells(tmp_path, text, data, name)


TEXT_SCHEMA = """\
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


def text_schema(missing: str = '["?", ""]', delimiter: str = ",", quote: str = '\\"') -> Schema:
    return table_schema(TEXT_SCHEMA % (missing, delimiter, quote))


def write(path: Path, schema: Schema, given_rows: list) -> None:
    a, *v, s, t = zip(*given_rows, strict=True)
    csv = schema.csv
    cells = [
        text.number_cells(np.array(a, np.float32), csv.missing),
        text.number_cells(np.array(v, np.float32).T, csv.missing, delimiter=csv.delimiter),
        text.string_cells(np.array([*s, b""], object)[:-1], csv),
        text.string_cells(np.array([*t, b""], object)[:-1], csv),
    ]
    path.write_bytes(text.header_line(["a", "v0", "v1", "v2", "s", "t"], csv) + text.lines(cells, csv)[0])


def same(sent: float, read: float, missing: Sequence[float]) -> bool:
    """Whether a number came back; one that means missing came back as missing."""
    if np.isnan(sent) or np.float32(sent) in missing:
        return bool(np.isnan(read))
    return bool(np.float32(sent) == np.float32(read))


@pytest.mark.parametrize(
    ("missing", "delimiter", "quote"),
    [('["?", ""]', ",", '\\"'), ("[-999]", ";", "'"), ('["1", "0", "-0"]', "|", '\\"')],
)
@given(given_rows=rows)
def test_every_row_comes_back_as_it_was(tmp_path_factory, missing, delimiter, quote, given_rows):
    schema = text_schema(missing, delimiter, quote)
    path = tmp_path_factory.mktemp("text") / "x.csv"
    write(path, schema, given_rows)
    reading = read_all(path, schema, label="optional")
    assert len({*reading.column(OFFSET), *(reject.offset for reject in reading.rejects)}) == len(
        given_rows
    )  # each is a row, or rejected for itself
    assert {reason for _, reason, _ in reading.reasons} <= {"not_utf8"}  # which the model rejects, too
    valid_rows = [r for r in given_rows if all(_is_utf8(value) for value in r[4:])]
    absent = missing_tokens(schema.csv.missing).numbers.tolist()
    for (a, *v, s, t), row in zip(valid_rows, reading.rows, strict=True):
        assert same(a, row["a"], absent)
        assert all(same(x, y, absent) for x, y in zip(v, row["v"], strict=True))
        word = canonical(s.strip().decode()).encode()
        assert (row["s"], row["t"]) == (s if word == s.strip() else word, t)


@given(given_rows=st.lists(st.tuples(strings, strings), min_size=1, max_size=8))
def test_lines_are_split_into_their_cells_again(given_rows):
    options = CsvOptions()
    columns = [text.string_cells(list(column), options) for column in zip(*given_rows, strict=True)]
    data, starts = text.lines(columns, options)
    assert (starts[0], starts[-1]) == (0, len(data))
    lines = [data[begin:end].decode("latin-1") for begin, end in itertools.pairwise(starts)]
    rows = [tuple(cell.encode("latin-1") for cell in next(csv.reader([line]))) for line in lines]
    assert rows == given_rows


def test_infinite_numbers_are_rejected_by_every_reader(tmp_path):
    schema = text_schema()
    write(tmp_path / "x.csv", schema, [(np.inf, 1, 2, 3, b"x", b""), (1, 1, -np.inf, 3, b"x", b"")])
    reading = read_all(tmp_path / "x.csv", schema, label="optional")
    assert (reading.rows, [reason for _, reason, _ in reading.reasons]) == ([], ["not_a_number"] * 2)


def test_every_float_is_written_so_that_it_is_read_as_itself():
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    cells = text.number_cells(values, CsvOptions().missing).to_pylist()
    assert (np.array([float(cell) for cell in cells]).astype(np.float32) == values).all()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
