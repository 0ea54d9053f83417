"""Compares two batches of named arrays record by record: floats within a tolerance, everything else exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RTOL = 1e-4
ATOL = 1e-5

Batch = Mapping[str, Any]  # name -> array [records, ...], or a sequence of one array per record if lengths vary


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first difference between two batches."""

    record: int | None  # None: all records differ (a feature is missing, or the number of records differs)
    feature: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = "all records" if self.record is None else f"record {self.record}"
        return f"{place}, {self.feature!r}: expected {self.expected}, found {self.found}"


def first_difference(expected: Batch, found: Batch) -> Difference | None:
    """The first differing record, and in it the first differing feature in the order of `expected`.

    Floats agree if |found - expected| <= ATOL + RTOL * |expected|, or if both are NaN; everything else must be equal.
    Shapes and kinds of dtype (float, integer, string) must agree, too.

    Returns:
      The difference, or None if there is none.
    """
    for name in (*expected, *found):
        if name not in found or name not in expected:
            return Difference(None, name, *(("a value", "none") if name in expected else ("none", "a value")))
    first: Difference | None = None
    for name in expected:
        difference = _first_in_feature(name, expected[name], found[name])
        if difference is not None and (first is None or _place(difference) < _place(first)):
            first = difference
    return first


def _place(difference: Difference) -> int:
    return -1 if difference.record is None else difference.record


def _first_in_feature(name: str, expected: Any, found: Any) -> Difference | None:
    if len(expected) != len(found):
        return Difference(None, name, f"{len(expected)} records", f"{len(found)} records")
    if not (isinstance(expected, np.ndarray) and isinstance(found, np.ndarray)):
        return _first_by_record(name, expected, found)
    if expected.shape[1:] != found.shape[1:]:
        return Difference(None, name, f"shape {list(expected.shape[1:])}", f"shape {list(found.shape[1:])}")
    if _family(expected) != _family(found):
        return Difference(None, name, str(expected.dtype), str(found.dtype))
    bad = np.flatnonzero(~_agree(expected, found).reshape(len(expected), -1).all(axis=1))
    return None if not bad.size else _at(name, int(bad[0]), expected, found)


def _first_by_record(name: str, expected: Sequence[Any], found: Sequence[Any]) -> Difference | None:
    for i, (want, got) in enumerate(zip(expected, found, strict=True)):
        a, b = np.asarray(want), np.asarray(got)
        same_kind = a.size == b.size == 0 or _family(a) == _family(b)
        if a.shape != b.shape or not same_kind or not np.all(_agree(a, b)):
            return _at(name, i, expected, found)
    return None


def _family(array: np.ndarray) -> str:
    return {"f": "float", "i": "integer", "u": "integer"}.get(array.dtype.kind, "other")


def _agree(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    if expected.dtype.kind == "f":
        return np.isclose(found, expected, rtol=RTOL, atol=ATOL, equal_nan=True)
    return np.asarray(expected == found)


def _at(name: str, record: int, expected: Any, found: Any) -> Difference:
    """The difference at a record; names the component that differs if the value is not a scalar."""
    want, got = np.asarray(expected[record]), np.asarray(found[record])
    if want.shape == got.shape and want.ndim:
        for index in np.ndindex(want.shape):
            if not _agree(want[index], got[index]):
                where = f"{name}[{', '.join(map(str, index))}]"
                return Difference(record, where, str(want[index]), str(got[index]))
    return Difference(record, name, str(expected[record]), str(found[record]))
