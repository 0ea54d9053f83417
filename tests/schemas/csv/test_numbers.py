"""A number is plain decimal text that fits a float32; nothing else becomes one."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.csv.numbers import missing_tokens, numbers

CASES: list[tuple[bytes, float | str]] = [
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


def decoded(
    cells: list[bytes], tokens: tuple[str, ...] = ("", "?"), if_absent: str | None = "missing_value"
) -> list[float | str]:
    values, problems = numbers(pa.array(cells, pa.binary()), missing_tokens(tuple(tokens)), if_absent=if_absent)
    return [problems[i].reason if i in problems else float(value) for i, value in enumerate(values)]


@pytest.mark.parametrize("company", [[], [b"1"], [b" 1"], [b"x"]], ids=["alone", "digit", "spaced", "bad"])
@pytest.mark.parametrize(("cell", "expected"), CASES)
def test_a_cell_is_read_the_same_whatever_its_neighbours(
    cell: bytes, expected: float | str, company: list[bytes]
) -> None:
    expected = expected if isinstance(expected, str) else float(np.float32(expected))
    assert decoded([*company, cell])[-1] == expected


def test_missing_values_are_nan_if_the_schema_fills_them() -> None:
    values = decoded([b"1", b"?", b" "], if_absent=None)
    assert values[0] == 1
    assert all(isinstance(v, float) and math.isnan(v) for v in values[1:])


def test_a_number_can_be_a_token_for_missing() -> None:
    assert decoded([b"-9", b"9", b"1"], tokens=("-9",)) == ["missing_value", 9, 1]
    assert decoded([b"9", b"1"], tokens=("9",)) == ["missing_value", 1]


def test_minus_zero_is_zero() -> None:
    for cells in ([b"-0"], [b"-0.0", b"1"], [b" -0", b"x"]):
        values, _ = numbers(pa.array(cells, pa.binary()), missing_tokens(()), if_absent=None)
        assert not np.signbit(np.float32(values[0]))


def test_a_slice_of_a_column_is_read_by_itself() -> None:
    cells = pa.array([b"x", b"1", b"22", b"y"], pa.binary())
    assert numbers(cells.slice(1, 2), missing_tokens(()), if_absent=None)[0].tolist() == [1, 22]
    assert numbers(cells.slice(1, 1), missing_tokens(()), if_absent=None)[0].tolist() == [1]


def test_white_space_around_every_number_of_a_column_does_not_count() -> None:
    for white in " \t\n\v\f\r":
        cells = pa.array([f"{white}1".encode(), f"2.5{white}{white}".encode(), b"3", b" x "], pa.binary())
        assert numbers(cells.slice(0, 3), missing_tokens(()), if_absent=None)[0].tolist() == [1, 2.5, 3]
        assert numbers(cells.slice(1, 2), missing_tokens(()), if_absent=None)[0].tolist() == [2.5, 3]


def test_what_is_missing_hides_nothing_beside_it() -> None:
    cells = [b"1", b"?", b" -0 ", b"nan", b"", b"1e39", b"x", b"2.5"]
    expected = [1, "missing_value", 0, "not_a_number", "missing_value", "out_of_range", "not_a_number", 2.5]
    for i in range(len(cells)):
        for j in range(i, len(cells)):
            assert decoded(cells[i : j + 1]) == expected[i : j + 1]
            assert decoded(cells[i : j + 1], tokens=("?", "", "-999")) == expected[i : j + 1]


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
