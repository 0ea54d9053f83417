"""What a CSV file is like: its beginning, its header, its ranges, and files that are none."""

from __future__ import annotations

import gzip
import random
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from schemas import storage
from schemas.csv import reader
from schemas.csv.file import binary_kind, open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.csv.rows import read_records
from schemas.csv.stream import open_stream
from schemas.errors import MillraceError, UsageError
from schemas.spec.table import OFFSET, SPLIT, Schema
from tests.support.csv_reading import TEXTS, csv_schema, read_all, read_bytes, schema_of, table_schema

ROWS = b"1,2,3\n4,5,6\n"
EXPECTED = [(b"1", b"2", b"3"), (b"4", b"5", b"6")]
NAMED = schema_of()
BARE = schema_of(header="none", columns=TEXTS)
AUTO = schema_of(columns=TEXTS)
PLACES = schema_of(
    ({"name": "a", "kind": "text", "column": 0}, {"name": "b", "kind": "text", "column": 1}),
    label={"name": "c", "kind": "category", "column": 2},
    num_columns=3,
)


@pytest.mark.parametrize("range_bytes", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("schema", "data", "first_offset"),
    [
        pytest.param(NAMED, b"a,b,c\n" + ROWS, 6, id="header"),
        pytest.param(NAMED, b" a , b,c \n" + ROWS, 10, id="header with spaces"),
        pytest.param(NAMED, b'"a","b","c"\n' + ROWS, 12, id="header in quotes"),
        pytest.param(NAMED, b"b,c,a\n2,3,1\n5,6,4\n", 6, id="header in another order"),
        pytest.param(NAMED, b"\n\r\na,b,c\n" + ROWS, 9, id="empty lines before the header"),
        pytest.param(AUTO, b"a,b,c\n" + ROWS, 6, id="header that may be absent"),
        pytest.param(AUTO, ROWS, 0, id="no header where there may be one"),
        pytest.param(AUTO, b"c,a,b\n3,1,2\n6,4,5\n", 6, id="header in another order than csv.columns"),
        pytest.param(BARE, ROWS, 0, id="no header"),
        pytest.param(BARE, ROWS[:-1], 0, id="no line end at the end"),
        pytest.param(PLACES, ROWS, 0, id="positions"),
        pytest.param(schema_of(header="present", num_columns=3), b"a,b,c\n" + ROWS, 6, id="header for certain"),
        pytest.param(BARE, b"\xef\xbb\xbf" + ROWS, 3, id="byte-order mark"),
        pytest.param(NAMED, b"\xef\xbb\xbfa,b,c\n" + ROWS, 9, id="byte-order mark and header"),
        pytest.param(NAMED, b"a,b,c\r\n1,2,3\r\n4,5,6\r\n", 7, id="CRLF"),
        pytest.param(NAMED, b"a,b,c\r1,2,3\r4,5,6\r", 6, id="lone CR"),
        pytest.param(NAMED, b"a,b,c\n\n1,2,3\n\r\n\n4,5,6\n\n", 7, id="empty lines"),
        pytest.param(NAMED, gzip.compress(b"a,b,c\n" + ROWS), 6, id="gzip"),
        pytest.param(NAMED, gzip.compress(b"a,b,c\n1,2") + gzip.compress(b",3\n4,5,6\n"), 6, id="gzip in two members"),
        pytest.param(
            NAMED, gzip.compress(b"\xef\xbb\xbfa,b,c\r" + ROWS.replace(b"\n", b"\r")), 9, id="gzip, mark, lone CR"
        ),
        pytest.param(NAMED, "\ufeffa,b,c\n1,2,3\n4,5,6\n".encode("utf-16-le"), 9, id="UTF-16 little endian"),
        pytest.param(NAMED, "\ufeffa,b,c\n1,2,3\n4,5,6\n".encode("utf-16-be"), 9, id="UTF-16 big endian"),
        pytest.param(
            schema_of(encoding="utf-16"), "a,b,c\n1,2,3\n4,5,6\n".encode("utf-16-le"), 6, id="UTF-16, no mark"
        ),
        pytest.param(schema_of(delimiter=";"), b"a;b;c\n1;2;3\n4;5;6\n", 6, id="semicolons"),
        pytest.param(
            schema_of(delimiter="\t", quote="'"), b"a\tb\tc\n'1'\t2\t3\n4\t5\t6\n", 6, id="tabs, other quotes"
        ),
        pytest.param(schema_of(quoted_newlines=True), b'"a",b,c\r\n1,"2",3\r\n4,5,6', 9, id="quoted newlines"),
        pytest.param(schema_of(quoted_newlines=True), b"a,b,c\r1,2,3\r4,5,6", 6, id="quoted newlines, lone CR"),
    ],
)
def test_every_way_to_write_the_same_rows(
    tmp_path: Path, schema: object, data: bytes, first_offset: int, range_bytes: int
) -> None:
    reading = read_bytes(tmp_path, data, schema, range_bytes=range_bytes, batch_bytes=range_bytes)  # type: ignore[arg-type]
    assert [tuple(row[name] for name in TEXTS) for row in reading.rows] == EXPECTED
    assert reading.rejects == []
    assert reading.rows[0][OFFSET] == first_offset


@pytest.mark.parametrize(
    "data", [b"", b"\n\r\n", b"\xef\xbb\xbf", gzip.compress(b"")], ids=["0", "lines", "mark", "gzip"]
)
@pytest.mark.parametrize("schema", [NAMED, BARE, schema_of(header="present")], ids=["auto", "none", "present"])
def test_a_file_without_records_has_no_ranges(tmp_path: Path, schema: object, data: bytes) -> None:
    assert read_bytes(tmp_path, data, schema).read == 0  # type: ignore[arg-type]


def test_a_header_alone_gives_no_rows(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"a,b,c\n", NAMED).read == 0


@pytest.mark.parametrize(
    ("data", "encoding", "expected"),
    [
        ("é,ÿ,ß\n".encode("latin-1"), "latin-1", ["é", "ÿ", "ß"]),
        ('"é\n",ÿ,ß\n'.encode("latin-1"), "latin-1", None),
        ("é,ʤ,ß\n".encode(), "utf-8", ["é", "ʤ", "ß"]),
        ("é,ʤ,🙂\n".encode("utf-16"), "utf-16", ["é", "ʤ", "🙂"]),
        ("é,ʤ,🙂\n".encode("utf-16"), "utf-8", ["é", "ʤ", "🙂"]),
    ],
)
def test_text_comes_out_in_utf8(tmp_path: Path, data: bytes, encoding: str, expected: list[str] | None) -> None:
    reading = read_bytes(tmp_path, data, schema_of(header="none", columns=TEXTS, encoding=encoding), batch_bytes=3)
    if expected is None:
        assert [reject.raw for reject in reading.rejects] == [b'"\xe9', b'",\xff,\xdf']
    else:
        assert [[row[name].decode() for name in TEXTS] for row in reading.rows] == [expected]


def test_a_lone_surrogate_rejects_its_row(tmp_path: Path) -> None:
    data = "\ufeff1,2,3\n4,\ud800,6\n7,8,9\n".encode("utf-16-le", "surrogatepass")
    reading = read_bytes(tmp_path, data, BARE)
    assert reading.reasons == [(9, "not_utf8", "b")]
    assert reading.column("a") == [b"1", b"7"]


def test_for_prediction_the_label_may_be_absent_and_is_not_read(tmp_path: Path) -> None:
    features = (
        {"name": "a", "kind": "text"},
        {"name": "z", "kind": "numeric"},
        {"name": "x", "kind": "ignore"},
        {"name": "w", "kind": "weight"},
    )
    named = schema_of(features, columns=("a", "c", "z", "x", "w"))
    for data in (b"a,z\nr,1\n", b"z,w,a\n1,?,r\n", b"c,a,x,z,w\n?,r,u,1,0\n", b"r,?,1,x,1\n", b"r,1,x,1\n"):
        reading = read_bytes(tmp_path, data, named, label="optional")
        assert [{k: v for k, v in row.items() if k != OFFSET} for row in reading.rows] == [{"a": b"r", "z": 1.0}], data
        assert reading.rejects == []


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        (NAMED, b"a,b\n1,2\n", "lacks the column 'c', which 'c' reads; it has 'a', 'b'. Add it to the file"),
        (NAMED, b"a,bee,c\n1,2,3\n", "Add it to the file, or, for a new dataset, take b out of the schema"),
        (NAMED, b"a,b,c,id\n1,2,3,4\n", "columns that no feature reads: 'id'. Declare"),
        (NAMED, b"a,b,c,id\n1,2,3,4\n", "  - {name: id, kind: ignore}"),
        (NAMED, b"a,b,c,the id\n1,2,3,4\n", '  - {name: column_3, kind: ignore, column: "the id"}'),
        (NAMED, b"a,b,c,null\n1,2,3,4\n", '  - {name: column_3, kind: ignore, column: "null"}'),
        (NAMED, b"a,b,c,\n1,2,3,4\n", "  - {name: column_3, kind: ignore, column: 3}"),
        (NAMED, b"a,b,a,c\n1,2,3,4\n", "the header names 'a' more than once"),
        (NAMED, b"1,2,3\n", "the first line contains '1', '2', '3'; expected a header with 'a', 'b', 'c'"),
        (
            PLACES.model_copy(update={"csv": NAMED.csv}),
            b"1,2,3\n",
            "expected csv: {columns: [...]} or csv: {num_columns: 3}",
        ),
        (NAMED, b"A,b,c\n1,2,3\n", "It has 'A', which is not 'a': rename one of them"),
        (NAMED, b"A,B,C\n1,2,3\n", "It has 'A', which is not 'a': rename one of them"),
        (NAMED, b"a;b;c\n1;2;3\n", "are separated by ';': declare csv: {delimiter: \";\"}"),
        (NAMED, b"a\tb\tc\n1\t2\t3\n", 'declare csv: {delimiter: "\\t"}'),
        (
            NAMED.model_copy(update={"csv": NAMED.csv.model_copy(update={"header": "present"})}),
            b"x,y,z\n1,2,3\n",
            "No column of the schema",
        ),
        (schema_of(header="present"), b'a,"b,c\n1,2,3\n', "the header lacks the column 'a'"),
    ],
)
def test_a_file_that_does_not_fit_its_schema_is_refused(
    tmp_path: Path, schema: object, data: bytes, message: str
) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        open_csv(str(path), schema)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


NUMBERS = (
    {"name": "z", "kind": "numeric"},
    {"name": "v", "kind": "numeric", "columns": ["v0", "v1"], "missing": 0.0},
    {"name": "w", "kind": "weight"},
)


@pytest.mark.parametrize(
    ("label", "header", "remedy"),
    [
        ("required", b"z,w,c", ". Add them to the file, or, for a new dataset, take v out of the schema"),
        ("required", b"v0,c", ". Add them to the file, or, for a new dataset, take z, v, w out of the schema"),
        ("required", b"z,w,v0,v1", ". Add it to the file"),
        ("optional", b"z,v0", ". Add it to the file; the cells may be empty"),
        ("optional", b"v0,v1", ". Add it to the file"),
        ("if_present", b"z,w,v1", ". Add it to the file; the cells may be empty"),
        ("if_present", b"c,v0,v1", ". Add it to the file"),
    ],
)
def test_a_column_that_is_not_there_is_added_or_not_read(
    tmp_path: Path, label: Any, header: bytes, remedy: str
) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(header + b"\n1,2,3,4\n")
    with pytest.raises(UsageError) as caught:
        open_csv(str(path), schema_of(NUMBERS, header="present", missing=[""]), label=label)
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "the gzip file is truncated after"),
        (lambda data: data[:20], "the gzip file is truncated after"),
        (lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], "corrupt gzip data after"),
        (lambda data: data + b"garbage", "corrupt gzip data after"),
    ],
)
def test_a_damaged_gzip_file_fails_the_read(tmp_path: Path, damage: object, message: str) -> None:
    path = tmp_path / "data.csv.gz"
    rows = b"".join(b"%d,%d,x\n" % (i * 7919 % 10007, i) for i in range(30_000))
    path.write_bytes(damage(gzip.compress(rows)))  # type: ignore[operator]
    with pytest.raises(MillraceError, match=message) as caught:
        read_all(path, BARE)
    assert str(path) in str(caught.value)


@pytest.mark.slow
def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3\n" * 15_000_000, 1))
    (part,) = split_ranges(open_csv(str(path), BARE, max_input_ratio=10), range_bytes=1)
    with pytest.raises(MillraceError, match="as a gzip bomb does; --max_input_ratio 10 is allowed"):
        sum(decoded.read for decoded in read_range(part, BARE))


def test_a_file_that_changes_while_it_is_read_fails_the_read(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(ROWS)
    (part,) = split_ranges(open_csv(str(path), BARE), range_bytes=100)
    storage.write_bytes(str(path), ROWS * 2)
    with pytest.raises(MillraceError, match="changed while it was being read"):
        list(read_range(part, BARE))


def test_a_read_can_be_left_early(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(ROWS * 1000)
    (part,) = split_ranges(open_csv(str(path), BARE), range_bytes=1 << 20)
    reading = read_range(part, BARE, batch_bytes=60)
    assert next(reading).read == 10
    reading.close()
    assert next(iter(read_range(part, BARE))).read == 2000


BINARY = {
    b"\x89PNG\r\n\x1a\n" + bytes(20): "a PNG image",
    b"\xff\xd8\xff\xe0" + bytes(20): "a JPEG image",
    b"GIF89a" + bytes(20): "a GIF image",
    b"\x7fELF\x02\x01\x01" + bytes(20): "a program",
    b"PK\x03\x04\x14" + bytes(20): "a zip archive",
    b"PAR1\x15\x04" + bytes(20): "a Parquet file",
    b"SQLite format 3\x00" + bytes(20): "an SQLite database",
    b"BZh91AY&SY\x00\x01": "compressed by bzip2",
}


@pytest.mark.parametrize(("data", "what"), BINARY.items())
def test_a_file_that_is_no_text_is_refused_by_what_it_is(tmp_path: Path, data: bytes, what: str) -> None:
    for name, stored in (("new.csv", data), ("new.csv.gz", gzip.compress(data))):
        path = tmp_path / name
        path.write_bytes(stored)
        with pytest.raises(UsageError) as error:
            open_csv(str(path), NAMED)
        assert str(error.value).startswith(f"{path}: is {what}")
        assert str(error.value).endswith("; expected a CSV file")
        assert str(error.value).isprintable()


@pytest.mark.parametrize("text", [b"ORC", b"PAR1", b"GIF87a", b"BZh9", b"%PDF-1", b"PK", b"ARROW1", b"a,b\n\x00"])
def test_letters_or_a_stray_control_code_make_no_file_binary(text: bytes) -> None:
    assert binary_kind(text + b",late\n1,yes\n") is None


RANGED = 20_000
TEXT = "a,b,c\n" + "".join(f"{random.Random(i).random()},some text {i},c{i % 3}\n" for i in range(RANGED))


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (TEXT.encode(), {}),
        (TEXT.encode(), {"quoted_newlines": True}),
        (gzip.compress(TEXT.encode()), {}),
        (TEXT.encode("utf-16"), {"encoding": "utf-16"}),
        (TEXT.replace("\n", "\r").encode(), {}),
    ],
    ids=["plain", "quoted newlines", "gzip", "utf-16", "carriage returns"],
)
@pytest.mark.parametrize("range_bytes", [1 << 30, 300_000])
def test_what_is_consumed_grows_to_the_size_of_the_range(tmp_path, data, options, range_bytes) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    schema = schema_of(**options)
    file = open_csv(str(path), schema)
    rows = 0
    for part in split_ranges(file, range_bytes=range_bytes):
        batches = list(read_range(part, schema, batch_bytes=50_000))
        consumed = [batch.consumed for batch in batches]
        assert consumed == sorted(consumed)
        assert consumed[0] < consumed[-1]
        assert part.covers <= consumed[-1] < part.covers + (1 << 16) + 2  # with the rest of the range's last line
        rows += sum(batch.batch.num_rows for batch in batches)
    assert rows == RANGED


LINES = [b"%d,two,%d" % (i, i * i) for i in range(500)]
DATA = b"a,b,c\n" + b"\r\n".join(LINES) + b"\n"
OFFSETS = [DATA.index(line) for line in (LINES[400], LINES[3], LINES[499])]


@pytest.mark.parametrize("zipped", [False, True])
def test_records_are_looked_up_unchanged(tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(DATA) if zipped else DATA)
    file = open_csv(str(path), schema_of())
    counted = mock.Mock(side_effect=open_stream)
    monkeypatch.setattr(reader, "open_stream", counted)
    records = read_records(file, schema_of(), OFFSETS, block_bytes=64)
    assert records == dict(zip(OFFSETS, (LINES[400], LINES[3], LINES[499]), strict=True))
    assert counted.call_count == zipped  # a stream is read once, however many are wanted
    assert read_records(file, schema_of(), []) == {}


@pytest.mark.parametrize("zipped", [False, True])
def test_a_record_that_was_removed_is_an_error(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(DATA) if zipped else DATA)
    file = open_csv(str(path), schema_of())
    with pytest.raises(MillraceError, match=f"no record begins at byte {OFFSETS[0] + 1}; the file was changed"):
        read_records(file, schema_of(), [OFFSETS[0] + 1, OFFSETS[1]])


@pytest.mark.parametrize(
    ("schema", "file", "rows", "splits"),
    [
        pytest.param("covertype", "covertype/covertype_100k.csv.gz", 100_000, 3, marks=pytest.mark.slow),
        ("census", "census/adult.data", 32_561, 1),
        ("census", "census/adult.test", 16_281, 1),
        pytest.param("mnist_csv", "mnist/mnist_10k.csv.gz", 10_000, 3, marks=pytest.mark.slow),
        ("titanic", "titanic/titanic.csv", 1_309, 3),
    ],
)
def test_every_row_of_the_datasets_is_read(real_data: Path, schema: str, file: str, rows: int, splits: int) -> None:
    declared = csv_schema(schema)
    reading = read_all(real_data / file, declared, with_split=True)
    assert (len(reading.rows), reading.reasons, reading.read) == (rows, [], rows)
    assert len(Counter(reading.column(SPLIT))) == splits


@pytest.mark.parametrize(("label", "more"), [("required", ",note,y"), ("optional", "")])
def test_a_file_has_the_files_names_or_those_of_features(tmp_path: Path, label: Any, more: str) -> None:
    schema, path = named_otherwise(), tmp_path / "new.csv"

    def opened(header: str) -> list[tuple[int, ...]]:
        path.write_text(f"{header}{more}\n")
        return [item.positions for item in open_csv(str(path), schema, label=label).columns]

    assert opened("Id.,Größe (cm),p0,p1") == opened("id,size_cm,p[p0],p.p1")
    with pytest.raises(UsageError, match=r"the feature 'size_cm' is there under two names: 'Größe \(cm\)', 'size_cm'"):
        opened("Id.,Größe (cm),p0,p1,size_cm")
    with pytest.raises(UsageError, match=r"'Gr\\xf6\\xdfe \(cm\)' and has other code points: rename one of them"):
        opened(unicodedata.normalize("NFD", "Id.,Größe (cm),p0,p1"))


def test_the_name_of_a_feature_that_is_another_ones_column_is_that_column(tmp_path: Path) -> None:
    schema = table_schema(
        "name: t\nformat: csv\nfeatures:\n"
        "  - {name: x, column: a, kind: numeric}\n"
        "  - {name: a, column: b, kind: numeric}\n"
        "label: {name: y, kind: category}\n"
    )
    path = tmp_path / "new.csv"
    path.write_text("a,y\n")
    with pytest.raises(UsageError, match="the header lacks the column 'b', which 'a' reads"):
        open_csv(str(path), schema)
    with pytest.raises(UsageError, match="expected a header with 'a', 'b'"):
        open_csv(str(path), schema, label="optional")


def named_otherwise() -> Schema:
    return table_schema(
        "name: t\nformat: csv\nfeatures:\n"
        '  - {name: id, column: "Id.", kind: key}\n'
        '  - {name: size_cm, column: "Größe (cm)", kind: numeric}\n'
        "  - {name: p, columns: [p0, p1], kind: numeric}\n"
        "  - {name: note, kind: ignore}\n"
        "label: {name: y, kind: category}\n"
    )


def test_a_file_for_prediction_has_the_files_names_or_those_of_features_and_may_have_more(tmp_path: Path) -> None:
    schema = named_otherwise()
    for header, ignored in (
        ("Id.,Größe (cm),p0,p1", ()),
        ("id,size_cm,p[p0],p[p1]", ()),
        ("p1,extra,p0,size_cm,y,note,Id.,more", ("extra", "more")),
    ):
        path = tmp_path / "new.csv"
        path.write_text(f"{header}\n")
        file = open_csv(str(path), schema, label="optional")
        assert file.ignored == ignored
        assert [name for name, _ in file.labels] == ["id", "size_cm", "p"]
        assert [len(item.positions) for item in file.columns] == [1, 1, 2]
    path.write_text("size_cm,p0,p1\n")
    with pytest.raises(UsageError, match=r"the header lacks 'Id\.', which the model needs; it has 'size_cm'"):
        open_csv(str(path), schema, label="optional")
