"""What is gathered of columns, compared with NumPy and Python on the same values, whatever the batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.profile import raw_columns
from schemas.profile.hashing import value_hashes
from schemas.profile.raw_columns import ColumnProfile, Moments, ValueCounts
from schemas.spec.split_hash import splitmix64


def profiled(cells: list[str], *, batch: int = 100, limit: int = 1000) -> ColumnProfile:
    profile = ColumnProfile(limit)
    for start in range(0, len(cells), batch):
        part = cells[start : start + batch]
        profile.add(pa.array([cell.encode() for cell in part], pa.binary()), splitmix64(start, len(part)))
    return profile


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=60),
    st.integers(1, 20),
)
def test_moments_are_those_of_all_values_together(values, batch):
    moments = Moments()
    for start in range(0, len(values), batch):
        part = np.array(values[start : start + batch])
        moments.add(part, np.ones(len(part), np.int64))
    every = np.array(values)
    scale = max(1.0, np.abs(every).max())
    assert moments.count == len(values)
    assert moments.mean == pytest.approx(every.mean(), abs=1e-9 * scale)
    assert moments.deviation == pytest.approx(every.std(), rel=1e-6, abs=1e-6 * scale)
    if every.std() > 1e-3 * scale:
        skewness = (((every - every.mean()) / every.std()) ** 3).mean()
        assert moments.skewness == pytest.approx(skewness, rel=1e-5, abs=1e-5)


def test_numbers_text_tokens_and_dates_are_told_apart():
    cells = ["1", " 2.5 ", "-3e1", "NA", "?", "", "red", "light blue", "2026-01-31", "007", "nan", "0x10", "1e400"]
    profile = profiled(cells, batch=4)
    assert profile.rows == len(cells)
    assert profile.numbers.count == 4
    assert (profile.low, profile.high, profile.whole) == (-30, 7, False)
    assert profile.always_missing == 4
    assert profile.found_tokens(numeric=False) == ("", "?", "NA", "nan")
    assert profile.missing(frozenset({"", "red"})) == 2
    assert profile.odd.distinct == profile.text_cells == 5
    assert profile.words == 6
    assert profile.dates == 1
    assert not profile.binary


def test_equal_columns_have_equal_signatures_however_they_are_cut():
    cells = [str(i % 7) for i in range(500)]
    assert profiled(cells, batch=33).signature == profiled(cells, batch=500).signature
    assert profiled(cells).signature != profiled([*cells[1:], cells[0]]).signature


def test_what_is_no_utf8_is_counted():
    profile = ColumnProfile(10)
    profile.add(pa.array([b"Zo\xeb", b"Zoe", b"Zo\xeb"], pa.binary()), splitmix64(0, 3))
    assert (profile.not_utf8, profile.text_cells) == (2, 3)


class TestValueCounts:
    def test_few_values_are_counted_exactly(self):
        counts = ValueCounts(100)
        for _ in range(3):
            counts.add(pa.array([b"a", b"b", b""], pa.binary()), np.array([5, 1, 2]))
        assert counts.exact
        assert counts.ranked() == [(b"a", 15), (b"", 6), (b"b", 3)]

    def test_many_values_are_estimated_from_a_sample(self):
        counts = ValueCounts(2000)
        for start in range(0, 100_000, 10_000):
            values = pa.array([f"v{i}".encode() for i in range(start, start + 10_000)], pa.binary())
            counts.add(values, np.where(np.arange(start, start + 10_000) % 4 == 0, 2, 1))
        assert not counts.exact
        assert counts.distinct == pytest.approx(100_000, rel=0.15)
        assert counts.once == pytest.approx(0.75, abs=0.06)
        assert len(counts.counts) <= 2048
        assert counts.ranked() == []

    def test_a_value_is_counted_wherever_it_comes(self):
        """Values that are sampled keep the count that they had before there were too many."""
        counts = ValueCounts(2000)
        names = [f"n{i}".encode() for i in range(5000)]
        for _ in range(4):
            for start in range(0, 5000, 1000):
                counts.add(pa.array(names[start : start + 1000], pa.binary()), np.ones(1000, np.int64))
        assert set(counts.counts.tolist()) == {4}


def test_hashes_of_values_differ():
    values = [
        b"",
        b"\0",
        b"\0\0",
        b"a",
        b"b",
        b"ab",
        b"ba",
        b"a" * 70_000,
        b"a" * 70_001,
        *(str(i).encode() for i in range(5000)),
    ]
    hashes = value_hashes(pa.array(values, pa.binary()))
    assert len(set(hashes.tolist())) == len(values)
    sliced = value_hashes(pa.array([b"zz", *values], pa.binary()).slice(1))
    assert (sliced == hashes).all()


def test_a_sample_of_rows_is_random_and_keeps_columns_together(monkeypatch):
    monkeypatch.setattr(raw_columns, "MAX_ROWS", 200)
    sample = raw_columns.row_sample(2)
    for start in range(0, 30_000, 1000):
        part = range(start, start + 1000)
        columns = {str(k): [str(i * (k + 1)).encode() for i in part] for k in (0, 1)}
        sample.add({"hash": splitmix64(start, 1000), **columns})
    kept = [int(value) for value in sample.table.column("0").to_pylist()]
    assert 80 <= len(kept) <= 200
    assert [int(value) for value in sample.table.column("1").to_pylist()] == [2 * i for i in kept]
    assert len({i // 3000 for i in kept}) == 10
