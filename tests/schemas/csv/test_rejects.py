"""A bad record is rejected with its place, its reason and its bytes; the others go on."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.csv.values import missing_tokens, numbers
from schemas.rejects import Reject
from schemas.spec.table import OFFSET
from tests.support.csv_reading import read_all, read_bytes, schema_of, table_schema

SCHEMA = schema_of(
    (
        {"name": "age", "kind": "numeric"},
        {"name": "size", "kind": "numeric", "columns": ["s1", "s2"], "missing": "mean"},
        {"name": "job", "kind": "category"},
        {"name": "hot", "kind": "one_hot", "columns": ["h1", "h3"]},
        {"name": "flag", "kind": "bool"},
        {"name": "w", "kind": "weight"},
        {"name": "note", "kind": "text", "max_bytes": 20},
    ),
    label={"name": "y", "kind": "category", "values": ["no", "yes"], "aliases": {"yes.": "yes"}},
    missing=("", "?"),
)
HEADER = b"age,s1,s2,job,h1,h2,h3,flag,w,note,y\n"
GOOD = b"39,1,2,clerk,0,1,0,t,1.5,hello,no\n"

CASES: list[tuple[bytes, str, str | None, str]] = [
    (b"39,1,2,clerk,0,1,0,t,1.5,hello", "too_few_columns", None, "found 10 columns, expected 11"),
    (b"39,1,2,clerk,0,1,0,t,1.5,hello,no,", "too_many_columns", None, "found 12 columns, expected 11"),
    (b" ", "too_few_columns", None, "found 1 column, expected 11"),
    (b'39,1,2,"clerk,0,1,0,t,1.5,hello,no', "unterminated_quote", None, "a quote opens a field and never closes"),
    (b'39,1,2,5" pipe,0,1,0,t,1.5,hello,no', "stray_quote", None, "found an odd number of quotes in the line"),
    (b"39,1,2,cl\rerk,0,1,0,t,1.5,hello,no", "stray_carriage_return", None, "a carriage return inside the line"),
    (b"old,1,2,clerk,0,1,0,t,1.5,hello,no", "not_a_number", "age", "found 'old', expected a decimal number"),
    (b"1e400,1,2,clerk,0,1,0,t,1.5,hello,no", "out_of_range", "age", "found '1e400', expected a number that fits"),
    (b"?,1,2,clerk,0,1,0,t,1.5,hello,no", "missing_value", "age", "found '?', which means missing"),
    (b"39,1,x,clerk,0,1,0,t,1.5,hello,no", "not_a_number", "s2", "found 'x'"),
    (b"39,1,2, ? ,0,1,0,t,1.5,hello,no", "missing_value", "job", "found ' ? ', which means missing"),
    (b"39,1,2,cl\xffrk,0,1,0,t,1.5,hello,no", "not_utf8", "job", "found 'cl\\xffrk', expected UTF-8"),
    (b"39,1,2,clerk,0,0,0,t,1.5,hello,no", "not_one_hot", "h1", "found 0 ones and 3 zeros in 3 columns"),
    (b"39,1,2,clerk,0,1,1,t,1.5,hello,no", "not_one_hot", "h1", "found 2 ones and 1 zeros in 3 columns"),
    (b"39,1,2,clerk,0,1,2,t,1.5,hello,no", "not_one_hot", "h1", "found 1 ones and 1 zeros in 3 columns"),
    (b"39,1,2,clerk,0,?,0,t,1.5,hello,no", "missing_value", "h2", "found '?'"),
    (b"39,1,2,clerk,0,1,0,maybe,1.5,hello,no", "not_a_bool", "flag", "found 'maybe', expected one of true, t,"),
    (b"39,1,2,clerk,0,1,0,,1.5,hello,no", "missing_value", "flag", "found '', which means missing"),
    (b"39,1,2,clerk,0,1,0,t,-1,hello,no", "negative_weight", "w", "found -1, expected 0 or more"),
    (b"39,1,2,clerk,0,1,0,t,?,hello,no", "missing_value", "w", "found '?'"),
    (b"39,1,2,clerk,0,1,0,t,1.5,h\xe9llo,no", "not_utf8", "note", "found 'h\\xe9llo', expected UTF-8"),
    (
        b"39,1,2,clerk,0,1,0,t,1.5,seven words of twenty-one,no",
        "too_long",
        "note",
        "found a text of 25 bytes, expected 20 at most (see max_bytes)",
    ),
    (b"39,1,2,clerk,0,1,0,t,1.5,hello,perhaps", "label_not_in_values", "y", "found 'perhaps', expected one of no, yes"),
    (b"39,1,2,clerk,0,1,0,t,1.5,hello, ?", "missing_label", "y", "found ' ?'"),
    (b"old,x,2,?,0,0,0,t,-1,hello,perhaps", "not_a_number", "age", "found 'old'"),
]


@pytest.mark.parametrize("range_bytes", [7, 1 << 20])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_line_is_rejected_alone(
    tmp_path: Path, case: tuple[bytes, str, str | None, str], range_bytes: int
) -> None:
    line, reason, column, detail = case
    data = HEADER + GOOD + line + b"\n" + GOOD
    reading = read_bytes(tmp_path, data, SCHEMA, range_bytes=range_bytes)
    (reject,) = reading.rejects
    assert (reject.reason, reject.column, reject.raw) == (reason, column, line)
    assert reject.offset == len(HEADER + GOOD)
    assert reject.source == str(tmp_path / "data.csv")
    assert detail in reject.detail
    assert Reject.from_json(reject.to_json()) == reject
    assert [row[OFFSET] for row in reading.rows] == [len(HEADER), len(HEADER + GOOD + line) + 1]
    assert reading.read == 3


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_header_that_stands_again_is_no_record(tmp_path: Path, mark: bytes) -> None:
    """In a file that was joined from several: in a job, and for a prediction, to which all of it may be words."""
    label_and_feature = "features: [{name: a, kind: category}]\nlabel: {name: y, kind: category}\n"
    schema = table_schema(f"name: t\nformat: csv\n{label_and_feature}")
    path = tmp_path / "joined.csv"
    path.write_bytes(mark + b"a,y\nb,c\na,c\n" + mark + b'a,"y"\nb,c\n')
    for reading in (read_all(path, schema), read_all(path, schema, label="optional")):
        assert [(reject.reason, reject.raw) for reject in reading.rejects] == [("repeated_header", mark + b'a,"y"')]
        assert (reading.read, reading.column("a")) == (4, [b"b", b"a", b"b"])
    path.write_bytes(b"a\nb\na\n")
    assert read_all(path, schema, label="optional").column("a") == [b"b", b"a"]  # one column's name may be a value


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        (b" 39 ,1,2,clerk,0,1,0,t,1.5,hello,no", "age", 39),
        (b"39,1,2, clerk ,0,1,0,t,1.5,hello,no", "job", b" clerk "),
        (b'39,1,2,"a ""b"", c",0,1,0,t,1.5,hello,no', "job", b'a "b", c'),
        (b'39,1,2,a"b"c,0,1,0,t,1.5,hello,no', "job", b'a"b"c'),
        (b"39,1,2,clerk,0,1,0, TRUE,1.5,hello,no", "flag", b"True"),
        (b"39,1,2,clerk,0, 1,0.0,t,1.5,hello,no", "hot", [0, 1, 0]),
        (b"39,1,2,clerk,0,1,0,t,0,hello,no", "w", 0),
        (b"39,1,2,clerk,0,1,0,t,1.5,,no", "note", b""),
        (b"39,1,2,clerk,0,1,0,t,1.5,h\x00llo,no", "note", b"h\x00llo"),
        (b"39,1,2,clerk,0,1,0,t,1.5,hello, yes. ", "y", b"yes"),
    ],
)
def test_unusual_but_valid_values_are_read(tmp_path: Path, line: bytes, column: str, value: object) -> None:
    reading = read_bytes(tmp_path, HEADER + line, SCHEMA)
    assert reading.reasons == []
    assert reading.column(column) == [value]


def test_a_missing_number_is_nan_if_the_schema_fills_it(tmp_path: Path) -> None:
    reading = read_bytes(tmp_path, HEADER + b"39,?,2,clerk,0,1,0,t,1.5,hello,no", SCHEMA)
    assert str(reading.column("size")) == "[[nan, 2.0]]"


@pytest.mark.parametrize("quoted_newlines", [False, True])
def test_a_record_that_is_too_long_is_rejected_and_cut(tmp_path: Path, quoted_newlines: bool) -> None:
    schema = schema_of(header="none", columns=("a", "b", "c"), quoted_newlines=quoted_newlines)
    data = b'1,2,3\n1,"' + b"x" * 9000 + b'",3\n4,5,6\n'
    for batch_bytes in (100, 1 << 20):
        reading = read_bytes(tmp_path, data, schema, max_record_bytes=5000, batch_bytes=batch_bytes, range_bytes=999)
        assert reading.reasons == [(6, "record_too_long", None)]
        assert reading.rejects[0].raw == data[6 : 6 + 4096]
        assert reading.column("a") == [b"1", b"4"]


@pytest.mark.parametrize("quote", [b"", b'"'])
def test_fields_of_ten_megabytes_are_read(tmp_path: Path, quote: bytes) -> None:
    features = ({"name": "a", "kind": "text"}, {"name": "b", "kind": "text", "max_bytes": 10_000_000})
    schema = schema_of(features, header="none", columns=("a", "b", "c"))
    data = b"1,2,3\n1," + quote + b"x" * 10_000_000 + quote + b",3\n4,5,6\n"
    reading = read_bytes(tmp_path, data, schema, batch_bytes=1 << 20)
    assert [len(b) for b in reading.column("b")] == [1, 10_000_000, 1]


def test_a_line_of_a_million_columns_is_rejected(tmp_path: Path) -> None:
    data = b"a,b,c\n1,2,3\n" + b"," * 999_999 + b"\n4,5,6\n"
    reading = read_bytes(tmp_path, data, schema_of())
    assert reading.reasons == [(12, "too_many_columns", None)]
    assert reading.rejects[0].detail == "found 1000000 columns, expected 3"


def test_a_quote_that_never_closes_rejects_the_rest_of_a_file_with_quoted_newlines(tmp_path: Path) -> None:
    schema = schema_of(quoted_newlines=True)
    data = b'a,b,c\n1,2,3\n4,"5,6\n7,8,9\n'
    reading = read_bytes(tmp_path, data, schema)
    assert reading.reasons == [(12, "unterminated_quote", None)]
    assert reading.rejects[0].raw == data[12:]
    assert reading.read == 2


CELLS: list[tuple[bytes, float | str]] = [
    (b"3", 3.0),
    (b"3.0", 3.0),
    (b"+3", 3.0),
    (b" 3\t", 3.0),
    (b"007", 7.0),
    (b".5", 0.5),
    (b"5.", 5.0),
    (b"-1.5e-3", -0.0015),
    (b"1E2", 100.0),
    (b"1e-400", 0.0),
    (b"16777217", 16777216.0),
    (b"3.4028234e38", 3.4028234e38),
    (b"3.5e38", "out_of_range"),
    (b"1e400", "out_of_range"),
    (b"-1e400", "out_of_range"),
    (b"inf", "not_a_number"),
    (b"-Infinity", "not_a_number"),
    (b"nan", "not_a_number"),
    (b"NA", "not_a_number"),
    (b"0x10", "not_a_number"),
    (b"1_000", "not_a_number"),
    (b"1,5", "not_a_number"),
    (b"1 2", "not_a_number"),
    (b"+-1", "not_a_number"),
    (b"1e", "not_a_number"),
    (b".", "not_a_number"),
    (b"1\x00", "not_a_number"),
    ("٣".encode(), "not_a_number"),
    (b"\xff", "not_a_number"),
    (b"", "missing_value"),
    (b"  ", "missing_value"),
    (b"?", "missing_value"),
    (b" ? ", "missing_value"),
]


def decoded(cells: list[bytes], tokens: tuple[str, ...] = ("", "?")) -> list[float | str]:
    values, problems = numbers(pa.array(cells, pa.binary()), missing_tokens(tokens), if_absent="missing_value")
    return [problems[i].reason if i in problems else float(value) for i, value in enumerate(values)]


@pytest.mark.parametrize("company", [[], [b"1"], [b" 1"], [b"x"]], ids=["alone", "digit", "spaced", "bad"])
@pytest.mark.parametrize(("cell", "expected"), CELLS)
def test_a_cell_is_read_the_same_whatever_its_neighbours(
    cell: bytes, expected: float | str, company: list[bytes]
) -> None:
    expected = expected if isinstance(expected, str) else float(np.float32(expected))
    assert decoded([*company, cell])[-1] == expected


def test_a_number_can_be_a_token_for_missing() -> None:
    assert decoded([b"-9", b"9", b"1"], tokens=("-9",)) == ["missing_value", 9, 1]
    assert decoded([b"9", b"1"], tokens=("9",)) == ["missing_value", 1]
    assert decoded([b"9.0", b"8e0", b"1"], tokens=("9", "8")) == ["missing_value", "missing_value", 1]


def test_minus_zero_is_zero() -> None:
    for cells in ([b"-0"], [b"-0.0", b"1"], [b" -0", b"x"]):
        values, _ = numbers(pa.array(cells, pa.binary()), missing_tokens(()), if_absent=None)
        assert not np.signbit(np.float32(values[0]))


DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
PIECES = st.lists(
    st.sampled_from([b"1", b"0", b"9", b".", b"e", b"E", b"+", b"-", b"x", b"inf", b"nan", b" "]), max_size=8
)


@given(st.lists(PIECES.map(b"".join), min_size=1, max_size=4))
@example([b"1e5", b"2.5"])
def test_any_cells_are_read_as_python_reads_them_or_refused(cells: list[bytes]) -> None:
    expected: list[float | str] = []
    for cell in cells:
        value = float(cell) if DECIMAL.fullmatch(cell.strip()) else None
        with np.errstate(over="ignore"):
            narrow = math.nan if value is None else float(np.float32(value))
        reason = "not_a_number" if value is None else "out_of_range"
        expected.append(narrow if math.isfinite(narrow) else reason)
    assert decoded(cells, tokens=()) == expected
