"""JSON values of one input as arrays, and what is said of those that the input does not take."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.serve.interface import Input, Refused
from millrace.serve.requests import array_of

AGE, SCORES, WORK = Input("age", "float32"), Input("scores", "float32", 3), Input("work", "string")


def place(row: int) -> str:
    return f"row {row}"


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (AGE, [1, 2.5, -0.0], [1, 2.5, 0]),
        (AGE, [float("nan"), float("inf")], [np.nan, np.inf]),
        (AGE, [1e300, -(10**300)], [np.inf, -np.inf]),  # which the model answers with out_of_range
        (AGE, [16777217], [16777216]),  # rounded as the job rounds it
        (SCORES, [[1, 2, 3], [4, 5.5, 6]], [[1, 2, 3], [4, 5.5, 6]]),
        (WORK, ["a", "", "\u00e9\x00"], [b"a", b"", b"\xc3\xa9\x00"]),
        (WORK, [{"b64": "/w=="}, {"b64": "/w"}, {"b64": ""}], [b"\xff", b"\xff", b""]),
    ],
)
def test_values_that_an_input_takes(column, values, expected):
    found = array_of(values, column, place)
    assert found.dtype == (object if column.dtype == "string" else np.float32)
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (AGE, "3", "row 1, 'age': found the string '3'; takes a number (NaN where it is missing)"),
        (AGE, True, "found true"),
        (AGE, None, "found null"),
        (AGE, [1], "found a list of 1"),
        (AGE, {}, "found an object"),
        (AGE, 10**400, "found an integer of too many digits"),
        (SCORES, [1, 2], "found a list of 2; takes a list of 3 numbers"),
        (SCORES, [1, "2", 3], "found the string '2' among its values"),
        (SCORES, [1, [2], 3], "found a list of 1 among its values"),
        (SCORES, [1, 10**400, 3], "found an integer of too many digits among its values"),
        (SCORES, 5, "found the number 5"),
        (SCORES, "abc", "found the string 'abc'"),
        (SCORES, {"a": 1, "b": 2, "c": 3}, "found an object"),
        (WORK, 3, "found the number 3; takes a string"),
        (WORK, {"b64": "???"}, "found text that is not base64"),
        (WORK, {"b64": 3}, "found an object"),
        (WORK, "\ud800", "half of a surrogate pair"),
    ],
)
def test_values_that_it_does_not_take(column, value, said):
    good = {"age": 1, "scores": [1, 2, 3], "work": ""}[column.name]
    with pytest.raises(Refused) as raised:
        array_of([good, value], column, place)
    assert said in str(raised.value)
    assert raised.value.status == 400
