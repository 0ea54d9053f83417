"""One record's fields are those that Python's csv module reads."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.csv.parse import join_fields, split_fields


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"", [b""]),
        (b"a,b", [b"a", b"b"]),
        (b",", [b"", b""]),
        (b'"a,b",c', [b"a,b", b"c"]),
        (b'"a""b"', [b'a"b']),
        (b'""', [b""]),
        (b'""""', [b'"']),
        (b'a"b",c"', [b'a"b"', b'c"']),
        (b' "a",b', [b' "a"', b"b"]),
        (b'"a"b"c,d', "stray_quote"),
        (b'"a"b,c', "stray_quote"),
        (b'"a" ,b', [b"a ", b"b"]),
        (b"a\x00b,\xff", [b"a\x00b", b"\xff"]),
        (b'"a\rb",c', [b"a\rb", b"c"]),
        (b'"a', "unterminated_quote"),
        (b'1,"a,2', "unterminated_quote"),
        (b'"a""', "unterminated_quote"),
        (b"a\rb,c", "stray_carriage_return"),
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


def test_a_field_of_ten_megabytes() -> None:
    assert split_fields(b'a,"' + b"x" * 10_000_000 + b'"', ",", '"') == [b"a", b"x" * 10_000_000]
