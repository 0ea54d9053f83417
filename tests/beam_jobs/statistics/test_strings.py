"""The statistics of strings, against plain Python: however they were distributed over bundles."""

from __future__ import annotations

import collections
import random

import numpy as np
import pyarrow as pa
import pytest

from schemas.profile.sketches import Frequent, Sizes
from schemas.profile.summaries import CUT, Strings

SIZES = Sizes.of(10)


def summary(values: list[str], *, bundles: int = 1) -> Strings:
    total = Strings.empty(SIZES)
    for i in range(bundles):
        counts = collections.Counter(value.encode() for value in values[i::bundles])
        part = Strings.empty(SIZES)
        part.add(pa.array(counts, pa.binary()), np.array(list(counts.values()), np.int64), 0)
        total.merge(part)
    return total


@pytest.mark.parametrize("bundles", [1, 13])
def test_words_of_many_alphabets(bundles: int) -> None:
    words = ["Oslo", "Łódź", "東京", "naïve", "🙂🙂", "a b", "שלום", ""]
    values = random.Random(1).choices(words, weights=[1, 2, 4, 8, 16, 32, 64, 128], k=5000)
    told = summary(values, bundles=bundles).describe(top=20)
    true = collections.Counter(values)
    assert {top["value"]: top["count"] for top in told["top_values"]} == true
    counts = [top["count"] for top in told["top_values"]]
    assert counts == sorted(counts, reverse=True)
    assert (told["distinct"], told["distinct_exact"], told["top_values_error"]) == (len(true), True, 0)
    lengths = [len(value) for value in values]
    assert told["length"] == {"mean": sum(lengths) / 5000, "min": 0, "max": 5}


@pytest.mark.parametrize("bundles", [1, 9])
def test_more_distinct_values_than_are_counted(bundles: int) -> None:
    draw = np.random.default_rng(2)
    values = [f"w{i}" for i in draw.zipf(1.3, 100_000).clip(max=10**9)]
    told = summary(values, bundles=bundles).describe(top=20)
    true = collections.Counter(values)
    assert not told["distinct_exact"]
    assert told["distinct"] == pytest.approx(len(true), rel=0.12)  # four standard errors of 1 / sqrt(1022)
    assert 0 < told["top_values_error"] <= 100_000 / (SIZES.frequent + 1)
    for top in told["top_values"]:
        assert top["count"] <= true[top["value"]] <= top["count"] + told["top_values_error"]
    assert [top["value"] for top in told["top_values"]][:3] == [value for value, _ in true.most_common(3)]


def test_a_column_of_unique_values_has_no_frequent_ones() -> None:
    told = summary([f"id {i}" for i in range(50_000)], bundles=5).describe(top=20)
    assert told["top_values"] == []
    assert told["distinct"] == pytest.approx(50_000, rel=0.12)


def test_long_values_are_cut_where_they_are_counted_and_nowhere_else() -> None:
    values = ["x" * 5000 + str(i % 3) for i in range(30)] + ["short"] * 5 + ["é" * 80] * 2
    found = summary(values, bundles=2)
    told = found.describe(top=20)
    assert told["top_values"][0] == {"value": "x" * CUT, "count": 30}
    assert told["distinct"] == 5
    assert told["length"]["max"] == 5001
    assert found.frequent.values.nbytes < 2000


def test_values_that_are_no_text() -> None:
    found = Strings.empty(SIZES)
    found.add(pa.array([b"\xff\xfe", b"ok"], pa.binary()), np.array([2, 1]), 4)
    told = found.describe(top=20)
    assert (told["count"], told["missing"]) == (3, 4)
    assert told["top_values"][0] == {"value": "\ufffd\ufffd", "count": 2}


def test_only_missing_values() -> None:
    found = Strings.empty(SIZES)
    found.add(pa.array([], pa.binary()), np.empty(0, np.int64), 9)
    assert found.describe(20) == {"count": 0, "missing": 9}


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_too_low_by_the_error_at_most(seed: int) -> None:
    """Whatever the order of additions and merges; a value that is not held counts as 0."""
    draw = random.Random(seed)
    limit, true, parts = 8, collections.Counter[bytes](), []
    for _ in range(draw.randrange(1, 6)):
        part = Frequent.empty(limit, pa.binary())
        for _ in range(draw.randrange(1, 5)):
            some = collections.Counter(str(int(draw.paretovariate(0.7))).encode() for _ in range(draw.randrange(60)))
            part.add(pa.array(some, pa.binary()), np.array(list(some.values()), np.int64))
            true += some
        parts.append(part)
    draw.shuffle(parts)
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    held = dict(zip(total.values.to_pylist(), total.counts.tolist(), strict=True))
    assert len(held) <= limit
    for value, count in true.items():
        assert held.get(value, 0) <= count <= held.get(value, 0) + total.error
    assert total.error <= sum(true.values()) / (limit + 1)
    assert total.exact == (held == true)
