"""What a summary holds of a column, against NumPy, however its values are dealt to parts."""

from __future__ import annotations

import collections
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.profile.duplicates import value_hashes
from schemas.profile.sketches import HELD, RANK_ERROR, DistinctSketch, FrequentValues, Moments, Sizes
from schemas.profile.statistics import RANKS, describe_summary
from schemas.profile.summary import BINS, CUT, Distribution, Summary

SIZES = Sizes.of(10)
MANY = 120_000


def summary_of(values: np.ndarray | list[str], *, parts: int = 1) -> Summary:
    """Of float32 values, NaN where one is missing, or of strings; dealt to parts and merged."""
    numeric = isinstance(values, np.ndarray)
    total = Summary(SIZES, numeric=numeric)
    dealt = (
        np.array_split(values, parts) if isinstance(values, np.ndarray) else [values[i::parts] for i in range(parts)]
    )
    for cells in dealt:
        part = Summary(SIZES, numeric=numeric)
        part.add(
            pa.array(np.asarray(cells, np.float32))
            if numeric
            else pa.array([cell.encode() for cell in cells], pa.binary())
        )
        total.merge(part)
    return total


def distributions() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    return {
        "normal": draw.normal(5, 2, MANY),
        "in order": np.arange(MANY),
        "mostly zero": np.where(draw.random(MANY) < 0.9, 0, draw.normal(0, 1, MANY)),
        "few distinct": draw.integers(-3, 40, MANY),
        "one in a thousand is huge": np.where(draw.random(MANY) < 0.001, 3e38, draw.normal(0, 1, MANY)),
    }


@pytest.mark.parametrize("parts", [1, 37])
@pytest.mark.parametrize("name", list(distributions()))
def test_many_numbers_are_described_as_numpy_describes_them(name: str, parts: int) -> None:
    values = distributions()[name].astype(np.float32)
    summary = summary_of(values, parts=parts)
    wide = values.astype(np.float64)
    description = describe_summary(summary)
    assert (description["count"], description["missing"], description["zeros"]) == (MANY, 0, int((values == 0).sum()))
    assert (description["min"], description["max"]) == (wide.min(), wide.max())
    assert (description["mean"], description["std"]) == (
        pytest.approx(wide.mean(), rel=1e-9, abs=1e-9),
        pytest.approx(wide.std()),
    )

    distribution, ordered, ranks = Distribution(summary), np.sort(wide), np.linspace(0, 1, 101)
    quantiles = distribution.at(ranks)
    low, high = (np.searchsorted(ordered, quantiles, side) / MANY for side in ("left", "right"))
    off = np.maximum(0, np.maximum(low - ranks, ranks - high))
    assert off.max() <= (1.5 / MANY if summary.quantiles_exact else 0.01)
    assert quantiles[[0, -1]].tolist() == [wide.min(), wide.max()]

    edges, counts = distribution.histogram()
    expected, _ = np.histogram(wide, edges)
    assert counts.sum() == MANY
    assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= (0 if summary.quantiles_exact else 0.01 * MANY)

    distinct = len(np.unique(values))
    assert description["distinct"] == (distinct if description["distinct_exact"] else pytest.approx(distinct, rel=0.15))
    true = dict(zip(*(array.tolist() for array in np.unique(values, return_counts=True)), strict=True))
    for top in description["top_values"]:
        assert top["count"] <= true[top["value"]] <= top["count"] + description["top_values_error"]
    assert description["top_values_error"] <= MANY / (SIZES.frequent + 1) * 2
    if name == "few distinct":
        assert summary.quantiles_exact
        assert [top["count"] for top in description["top_values"]] == sorted(true.values(), reverse=True)[:20]
    if name == "mostly zero":
        assert description["top_values"][0]["value"] == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_shares_and_quantiles_are_those_of_numpy(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    distribution = Distribution(summary_of(values, parts=2))
    points = np.array([values[0], values[-1], 0, -np.inf, np.inf], np.float32)
    np.testing.assert_allclose(distribution.up_to(points), [np.mean(values <= point) for point in points])
    ranks = np.array([0, 0.2, 0.5, 1])
    quantiles = np.quantile(values.astype(np.float64), ranks, method="inverted_cdf")
    np.testing.assert_array_equal(distribution.at(ranks), quantiles)
    edges, counts = distribution.histogram()
    assert counts.sum() == len(values)
    assert counts[0] == ((values < edges[1]).sum() if len(counts) > 1 else len(values))


def test_equal_jobs_have_equal_sketches_and_small_parts_stay_within_the_rank_error() -> None:
    values = np.random.default_rng(11).normal(size=200_000)
    first, second = summary_of(values, parts=2000), summary_of(values, parts=2000)
    assert first.sample.items.tobytes() == second.sample.items.tobytes()
    assert first.sample.weights.sum() == len(values)
    assert len(first.sample.items) <= HELD
    ranks = np.linspace(0, 1, 1001)
    off = np.searchsorted(np.sort(values.astype(np.float32)), Distribution(first).at(ranks)) / len(values) - ranks
    assert np.quantile(abs(off), 0.99) <= RANK_ERROR


MOST = float(np.finfo(np.float32).max)
SINGLE: dict[str, Any] = {"quantiles": {"ranks": list(RANKS), "values": [4.5] * len(RANKS), "exact": True}}
SINGLE |= {"histogram": {"edges": [4.5, 4.5], "counts": [1]}, "top_values": [{"value": 4.5, "count": 1}]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([np.nan] * 100, {"count": 0, "missing": 100}),
        ([np.nan, 4.5, np.nan], {"count": 1, "missing": 2, "mean": 4.5, "std": 0, **SINGLE}),
        ([-MOST, 0, MOST, MOST], {"min": -MOST, "max": MOST, "zeros": 1, "mean": MOST / 4}),
    ],
    ids=["no value", "a single value", "the greatest and least numbers there are"],
)
def test_columns_at_their_limits(values: list[float], expected: dict[str, Any]) -> None:
    for parts in (1, 3):
        description = describe_summary(summary_of(np.array(values), parts=parts))
        assert {name: description[name] for name in expected} == expected
        assert sum(description.get("histogram", {"counts": []})["counts"]) == description["count"]
        assert np.isfinite([description[name] for name in ("mean", "std") if name in description]).all()


def test_neighbouring_numbers_have_a_histogram() -> None:
    """Most edges between them are no different as float32."""
    low = np.float32(1)
    values = np.repeat(np.array([low, np.nextafter(low, np.float32(2))]), [3, 5])
    assert Distribution(summary_of(values)).histogram()[1].tolist()[:: BINS - 1] == [3, 5]
    draw = np.linspace(1e7, 1e7 + 3000, 5000, dtype=np.float32)  # too many for exact counts, and few float32 between
    _, counts = Distribution(summary_of(draw)).histogram()
    assert counts.sum() == 5000
    assert (counts >= 0).all()


@pytest.mark.parametrize("parts", [1, 13])
def test_words_of_many_alphabets(parts: int) -> None:
    words = ["Oslo", "Łódź", "東京", "naïve", "🙂🙂", "a b", "שלום", ""]
    values = random.Random(1).choices(words, weights=[1, 2, 4, 8, 16, 32, 64, 128], k=5000)
    description = describe_summary(summary_of(values, parts=parts))
    true = collections.Counter(values)
    assert {top["value"]: top["count"] for top in description["top_values"]} == true
    counts = [top["count"] for top in description["top_values"]]
    assert counts == sorted(counts, reverse=True)
    assert (description["distinct"], description["distinct_exact"], description["top_values_error"]) == (
        len(true),
        True,
        0,
    )
    lengths = [len(value) for value in values]
    assert description["length"] == {"mean": sum(lengths) / 5000, "min": 0, "max": 5}


@pytest.mark.parametrize("parts", [1, 9])
def test_more_distinct_values_than_are_counted(parts: int) -> None:
    draw = np.random.default_rng(2)
    values = [f"w{i}" for i in draw.zipf(1.3, 100_000).clip(max=10**9)]
    summary, true = summary_of(values, parts=parts), collections.Counter(values)
    description = describe_summary(summary)
    assert not description["distinct_exact"]
    assert description["distinct"] == pytest.approx(len(true), rel=0.12)  # four standard errors of 1 / sqrt(1022)
    assert summary.once == pytest.approx(np.mean([count == 1 for count in true.values()]), abs=0.06)
    assert summary.ranked() == []
    assert 0 < description["top_values_error"] <= 100_000 / (SIZES.frequent + 1)
    for top in description["top_values"]:
        assert top["count"] <= true[top["value"]] <= top["count"] + description["top_values_error"]
    assert [top["value"] for top in description["top_values"]][:3] == [value for value, _ in true.most_common(3)]


def test_long_values_are_cut_where_they_are_counted_and_nowhere_else() -> None:
    values = ["x" * 5000 + str(i % 3) for i in range(30)] + ["short"] * 5 + ["é" * 80] * 2
    summary = summary_of(values, parts=2)
    description = describe_summary(summary)
    assert description["top_values"][0] == {"value": "x" * CUT, "count": 30}
    assert description["distinct"] == 5
    assert description["length"]["max"] == 5001
    assert summary.frequent.values.nbytes < 2000


NO_TEXT = [{"value": "\ufffd\ufffd", "count": 2}, {"value": "ok", "count": 1}]


@pytest.mark.parametrize(
    ("values", "counts", "missing", "expected"),
    [
        ([b"\xff\xfe", b"ok"], [2, 1], 4, {"count": 3, "missing": 4, "top_values": NO_TEXT}),
        ([], [], 9, {"count": 0, "missing": 9}),
        ([b"id %d" % i for i in range(50_000)], [1] * 50_000, 0, {"top_values": [], "distinct_exact": False}),
    ],
    ids=["no text", "only missing values", "unique values, of which none is frequent"],
)
def test_strings_at_their_limits(
    values: list[bytes], counts: list[int], missing: int, expected: dict[str, Any]
) -> None:
    summary = Summary(SIZES, numeric=False)
    summary.add_counted(pa.array(values, pa.binary()), np.array(counts, np.int64), missing=missing)
    description = describe_summary(summary)
    assert {name: description[name] for name in expected} == expected
    assert description.get("distinct", 0) == pytest.approx(len(values), rel=0.12)


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_too_low_by_the_error_at_most(seed: int) -> None:
    """Whatever the order of additions and merges; a value that is not held counts as 0."""
    draw = random.Random(seed)
    limit, true, parts = 8, collections.Counter[bytes](), []
    hashed = DistinctSketch(16)
    for _ in range(draw.randrange(1, 6)):
        part = FrequentValues(limit, pa.nulls(0, pa.binary()))
        for _ in range(draw.randrange(1, 5)):
            drawn = collections.Counter(str(int(draw.paretovariate(0.7))).encode() for _ in range(draw.randrange(60)))
            values, counts = pa.array(drawn, pa.binary()), np.array(list(drawn.values()), np.int64)
            part.add(values, counts)
            hashed.add(value_hashes(values), counts)
            true += drawn
        parts.append(part)
    draw.shuffle(parts)
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    counted = dict(zip(total.values.to_pylist(), total.counts.tolist(), strict=True))
    assert len(counted) <= limit
    for value, count in true.items():
        assert counted.get(value, 0) <= count <= counted.get(value, 0) + total.error
    assert total.error <= sum(true.values()) / (limit + 1)
    assert (total.error == 0) == (counted == true)
    smallest = sorted(zip(value_hashes(pa.array(true, pa.binary())).tolist(), true.values(), strict=True))[:16]
    assert list(zip(hashed.hashes.tolist(), hashed.counts.tolist(), strict=True)) == smallest


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=60), st.integers(1, 20))
def test_moments_are_those_of_all_values_together(values: list[float], size: int) -> None:
    moments = Moments()
    for start in range(0, len(values), size):
        part = np.array(values[start : start + size])
        moments.add(part, np.ones(len(part), np.int64))
    every = np.array(values)
    scale = max(1.0, np.abs(every).max())
    assert (moments.count, moments.low, moments.high) == (len(values), every.min(), every.max())
    assert moments.mean == pytest.approx(every.mean(), abs=1e-9 * scale)
    assert moments.deviation == pytest.approx(every.std(), rel=1e-6, abs=1e-6 * scale)
    if every.std() > 1e-3 * scale:
        skewness = (((every - every.mean()) / every.std()) ** 3).mean()
        assert moments.skewness == pytest.approx(skewness, rel=1e-5, abs=1e-5)


def test_hashes_of_values_differ() -> None:
    values = [b"", b"\0", b"\0\0", b"a", b"b", b"ab", b"ba", b"a" * 70_000, b"a" * 70_001]
    values += [str(i).encode() for i in range(5000)]
    hashes = value_hashes(pa.array(values, pa.binary()))
    assert len(set(hashes.tolist())) == len(values)
    assert (value_hashes(pa.array([b"zz", *values], pa.binary()).slice(1)) == hashes).all()
