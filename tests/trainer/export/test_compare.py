"""When two batches agree, and which difference is named."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.export.skew_check import first_difference

NAN = float("nan")


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"x": floats(1, 2)}, {"x": floats(1, 2)}),
        ({"x": floats(1000, 0)}, {"x": floats(1000.09, 0.000009)}),  # rtol 1e-4, atol 1e-5
        ({"x": floats(NAN, 1)}, {"x": floats(NAN, 1)}),
        ({"x": np.array([3])}, {"x": np.array([3], np.int32)}),
        ({"x": np.array([b"a", b""], object)}, {"x": np.array([b"a", b""], object)}),
        ({"x": [np.array([1, 2]), np.array([], np.int64)]}, {"x": [np.array([1, 2]), np.array([], np.float32)]}),
        ({}, {}),
    ],
)
def test_these_agree(expected, found):
    assert first_difference(expected, found) is None


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        ({"x": floats(0, 1)}, {"x": floats(0, 1.01)}, "record 1, 'x': expected 1.0, found 1.01"),
        ({"x": floats(0, NAN)}, {"x": floats(0, 1)}, "record 1, 'x': expected nan, found 1.0"),
        ({"x": floats(np.inf)}, {"x": floats(1)}, "record 0, 'x': expected inf, found 1.0"),
        ({"x": np.array([3, 4])}, {"x": np.array([3, 5])}, "record 1, 'x': expected 4, found 5"),
        ({"x": np.array([3])}, {"x": floats(3)}, "all records, 'x': expected int64, found float32"),
        ({"x": np.array([b"a"], object)}, {"x": np.array([b"b"], object)}, "record 0, 'x': expected b'a', found b'b'"),
        ({"x": np.array([b"a"], object)}, {"x": np.array([b"a\0"], object)}, r"expected b'a', found b'a\x00'"),
        ({"x": floats([1, 2], [3, 4])}, {"x": floats([1, 2], [3, 5])}, "record 1, 'x[1]': expected 4.0, found 5.0"),
        ({"x": floats([1, 2])}, {"x": floats([1])}, "all records, 'x': expected shape [2], found shape [1]"),
        ({"x": floats(1)}, {"x": floats(1, 2)}, "all records, 'x': expected 1 records, found 2 records"),
        ({"x": floats(1)}, {}, "all records, 'x': expected a value, found none"),
        ({}, {"x": floats(1)}, "all records, 'x': expected none, found a value"),
        ({"x": [np.array([1]), np.array([2, 3])]}, {"x": [np.array([1]), np.array([2])]}, "record 1, 'x'"),
    ],
)
def test_these_differ_and_the_place_is_named(expected, found, message):
    assert message in str(first_difference(expected, found))


def test_the_first_record_is_named_and_in_it_the_first_feature():
    expected = {"a": floats(0, 0, 0), "b": floats(0, 0, 0), "c": floats(0, 0, 0)}
    found = {"a": floats(0, 0, 9), "b": floats(0, 9, 0), "c": floats(0, 9, 0)}
    difference = first_difference(expected, found)
    assert difference is not None
    assert (difference.record, difference.feature) == (1, "b")
