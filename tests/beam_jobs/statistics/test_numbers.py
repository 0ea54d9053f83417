"""The statistics of numbers, against NumPy: however they were distributed over bundles."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.profile.sketches import Sizes
from schemas.profile.statistics_files import rank_error
from schemas.profile.summaries import RANKS, Numbers

SIZES = Sizes.of(10)
MANY = 120_000


def summary(values: np.ndarray, *, bundles: int = 1) -> Numbers:
    """Of float32 values, NaN where one is missing, dealt to bundles and merged."""
    total = Numbers.empty(SIZES)
    for some in np.array_split(values.astype(np.float32), bundles):
        part = Numbers.empty(SIZES)
        present = np.sort(some[~np.isnan(some)])
        part.add(present, len(some) - len(present))
        total.merge(part)
    return total


def distributions() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    return {
        "normal": draw.normal(5, 2, MANY),
        "skewed": np.exp(draw.normal(0, 3, MANY)),
        "in order": np.arange(MANY),
        "mostly zero": np.where(draw.random(MANY) < 0.9, 0, draw.normal(0, 1, MANY)),
        "few distinct": draw.integers(-3, 40, MANY),
        "one in a thousand is huge": np.where(draw.random(MANY) < 0.001, 3e38, draw.normal(0, 1, MANY)),
    }


@pytest.mark.parametrize("bundles", [1, 37])
@pytest.mark.parametrize("name", list(distributions()))
def test_many_values_are_described_as_numpy_describes_them(name: str, bundles: int) -> None:
    values = distributions()[name].astype(np.float32)
    found = summary(values, bundles=bundles)
    wide = values.astype(np.float64)
    assert (found.count, found.missing, found.zeros) == (MANY, 0, int((values == 0).sum()))
    assert (found.low, found.high) == (wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-9)
    assert found.std == pytest.approx(wide.std(), rel=1e-9)

    ordered, ranks = np.sort(wide), np.linspace(0, 1, 101)
    quantiles = found.at(ranks)
    low, high = (np.searchsorted(ordered, quantiles, side) / MANY for side in ("left", "right"))
    off = np.maximum(0, np.maximum(low - ranks, ranks - high))
    assert off.max() <= (1.5 / MANY if found.quantiles_exact else 0.01)
    assert quantiles[[0, -1]].tolist() == [wide.min(), wide.max()]

    edges, counts = found.histogram()
    expected, _ = np.histogram(wide, edges)
    assert counts.sum() == MANY
    assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= (0 if found.quantiles_exact else 0.01 * MANY)

    distinct = len(np.unique(values))
    told = found.describe(top=20)
    assert told["distinct"] == (distinct if told["distinct_exact"] else pytest.approx(distinct, rel=0.15))
    true = dict(zip(*(array.tolist() for array in np.unique(values, return_counts=True)), strict=True))
    for top in told["top_values"]:
        assert top["count"] <= true[top["value"]] <= top["count"] + told["top_values_error"]
    assert told["top_values_error"] <= MANY / (SIZES.frequent + 1) * 2
    if name == "few distinct":
        assert found.quantiles_exact
        assert [top["count"] for top in told["top_values"]] == sorted(true.values(), reverse=True)[:20]
    if name == "mostly zero":
        assert told["top_values"][0]["value"] == 0


def test_the_rank_error_is_what_the_documentation_says() -> None:
    assert 0.006 < rank_error() < 0.007


def test_few_distinct_values_are_exact_and_do_not_depend_on_the_bundles() -> None:
    draw = np.random.default_rng(3)
    values = draw.integers(0, 500, 20_000).astype(np.float32)
    values[draw.random(20_000) < 0.1] = np.nan
    present = values[~np.isnan(values)]
    told = summary(values).describe(20)
    assert told["missing"] == 20_000 - len(present)
    expected = np.quantile(present, RANKS, method="inverted_cdf")
    assert told["quantiles"] == {"ranks": list(RANKS), "values": expected.tolist(), "exact": True}
    for bundles in (2, 11):
        again = summary(draw.permutation(values), bundles=bundles).describe(20)
        assert again.pop("mean") == pytest.approx(told["mean"], rel=1e-12)
        assert again.pop("std") == pytest.approx(told["std"], rel=1e-12)
        assert again.items() <= told.items()


def test_a_column_without_values_and_one_with_a_single_value() -> None:
    assert summary(np.full(100, np.nan), bundles=3).describe(20) == {"count": 0, "missing": 100}
    assert np.isnan(summary(np.full(100, np.nan)).std)
    told = summary(np.array([np.nan, 4.5, np.nan]), bundles=3).describe(20)
    assert (told["count"], told["missing"], told["mean"], told["std"]) == (1, 2, 4.5, 0)
    assert told["quantiles"]["values"] == [4.5] * len(RANKS)
    assert told["histogram"] == {"edges": [4.5, 4.5], "counts": [1]}
    assert told["top_values"] == [{"value": 4.5, "count": 1}]


def test_the_greatest_and_least_numbers_there_are() -> None:
    most = np.finfo(np.float32).max
    told = summary(np.array([-most, 0, most, most], np.float32), bundles=2).describe(20)
    assert (told["min"], told["max"], told["zeros"]) == (-float(most), float(most), 1)
    assert np.isfinite([told["mean"], told["std"], *told["histogram"]["edges"]]).all()
    assert told["histogram"]["counts"][0] == 1
    assert told["histogram"]["counts"][-1] == 2


def test_neighbouring_numbers_have_a_histogram() -> None:
    """Most edges between them are no different as float32."""
    low = np.float32(1)
    values = np.repeat(np.array([low, np.nextafter(low, np.float32(2))]), [3, 5])
    assert summary(values).histogram()[1].tolist()[:: len(summary(values).histogram()[1]) - 1] == [3, 5]
    draw = np.linspace(1e7, 1e7 + 3000, 5000, dtype=np.float32)  # too many for exact counts, and few float32 between
    _, counts = summary(draw).histogram()
    assert counts.sum() == 5000
    assert (counts >= 0).all()
