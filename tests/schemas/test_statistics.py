"""Statistics of columns, against NumPy, however rows are distributed over batches and bundles."""

from __future__ import annotations

import collections
import itertools
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import statistics_pb2

from beam_jobs.profiles import MergeProfiles
from schemas.profile import raw_columns, statistics
from schemas.profile.columns import CUT, Column, Numbers, Strings, add_numbers, columns_of
from schemas.profile.distributions import BINS, RANKS, Distributions, describe_numbers
from schemas.profile.duplicates import value_hashes
from schemas.profile.profiles import Profiles
from schemas.profile.raw_columns import ColumnProfile, Moments, ValueCounts
from schemas.profile.sketches import HELD, RANK_ERROR, Frequent, Quantiles, Sizes, places_held
from schemas.profile.statistics import Statistics
from schemas.profile.statistics_files import describe, to_proto
from schemas.spec.split_hash import splitmix64
from schemas.spec.table import SPLITS
from tests.support.csv_reading import table_schema
from tests.support.people import SCHEMA
from tests.support.samples import column_of

OF_0_2 = Path(__file__).parents[1] / "fixtures" / "v0_2_0"
NUMBER = Column("x", "numbers", "numeric", "feature", ("x",))
WORD = Column("s", "strings", "category", "label", ("s",), missing=("?", ""))
PET = Column("pet", "one_hot", "one_hot", "feature", ("pet",), values=("cat", "dog", "eel"))
PIXELS = Column("pixels", "numbers", "numeric", "feature", ("pixels[0]", "pixels[1]"))
COLUMNS = (NUMBER, WORD, PET, PIXELS)


def batch(rows: int, seed: int) -> tuple[pa.RecordBatch, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random(rows) < 0.2, np.nan, draw.integers(0, 50, rows)).astype(np.float32)[:, None]
    words = [[b" Oslo", b"Oslo ", b"?", b"", b"Rom"][i] for i in draw.integers(0, 5, rows)]
    pets = np.eye(3, dtype=np.float32)[draw.integers(0, 3, rows)]
    whole = draw.integers(0, 256, (rows, 2)).astype(np.float32)
    columns: dict[str, Any] = {"x": x, "s": words, "pet": pets, "pixels": whole}
    found = pa.RecordBatch.from_pydict({name: column_of(values) for name, values in columns.items()})
    return found, draw.choice([0, 2], rows).astype(np.int8)  # the split eval is empty


def collected(batches: list[tuple[pa.RecordBatch, np.ndarray]], columns: tuple[Column, ...] = COLUMNS) -> Statistics:
    statistics = Statistics(columns)
    for found, splits in batches:
        statistics.add(found, splits)
    return statistics


def test_every_split_has_the_statistics_of_its_rows() -> None:
    found, splits = batch(3000, 1)
    told = describe(collected([(found, splits)]))
    assert list(told["splits"]) == ["train", "test"]
    x, s, pet, *_ = told["features"]
    for i, name in ((0, "train"), (2, "test")):
        rows = np.flatnonzero(splits == i)
        assert told["splits"][name] == {"rows": len(rows)}
        words = [found.column("s").flatten()[row].as_py().strip() for row in rows.tolist()]
        assert s["splits"][name]["missing"] == words.count(b"") + words.count(b"?")
        tops = {top["value"]: top["count"] for top in s["splits"][name]["top_values"]}
        assert tops == {"Oslo": words.count(b"Oslo"), "Rom": words.count(b"Rom")}
        pets = np.asarray(found.column("pet").flatten()).reshape(-1, 3)[rows].sum(0)
        tops = {top["value"]: top["count"] for top in pet["splits"][name]["top_values"]}
        assert tops == dict(zip(("cat", "dog", "eel"), pets.tolist(), strict=True))
    assert (s["role"], x["role"], pet["kind"]) == ("label", "feature", "one_hot")


def test_bundles_and_batches_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever grouping a pipeline merges them."""
    batches = [batch(100 + i, i) for i in range(12)]
    whole = describe(collected(batches))
    for item in whole["features"]:
        for found in item["splits"].values():
            found |= {name: pytest.approx(found[name], rel=1e-12) for name in {"mean", "std"} & found.keys()}
    monkeypatch.setattr(statistics, "WAITING_BYTES", 3000)  # every second batch

    def parts() -> list[Statistics]:
        return [pickle.loads(pickle.dumps(collected(batches[i : i + 3]))) for i in range(0, 12, 3)]

    combine = MergeProfiles()
    one = combine.create_accumulator()
    for part in parts():
        one = combine.add_input(one, part)
    first, *others = parts()
    alone = combine.add_input(combine.create_accumulator(), first)
    rest = combine.merge_accumulators(others)
    other = combine.merge_accumulators([combine.create_accumulator(), rest, alone])
    for merged in (combine.extract_output(one), combine.extract_output(other)):
        assert isinstance(merged, Statistics)
        assert sum(merged.rows.values()) == sum(100 + i for i in range(12))
        assert describe(merged) == whole
    assert combine.extract_output(combine.create_accumulator()) is None


def test_the_bytes_hold_everything() -> None:
    found = collected([batch(500, 3)])
    found.channels_of("train", "left/").add(np.array([4]), np.array([[1, 2, 3]]), np.array([[5, 6, 7]]))
    again = Statistics.from_bytes(found.to_bytes())
    assert describe(again) == describe(found)
    assert again.columns == found.columns
    assert again.channels == found.channels
    assert again.to_bytes() == found.to_bytes()
    again.merge(found)
    assert again.rows == {split: 2 * rows for split, rows in found.rows.items()}


@pytest.mark.parametrize("units", [(300,), (0, 300, 0, 7, 5000, 0)])
def test_profiles_of_units_are_merged_in_order_and_empty_ones_left_out(tmp_path: Path, units: tuple[int, ...]) -> None:
    def unit(rows: int, seed: int) -> Profiles:
        found = Profiles(COLUMNS, None)
        if rows:
            found.add(*batch(rows, seed), np.zeros(rows, np.int64), np.arange(rows))
        return found

    here = there = None
    for number, rows in enumerate(units):
        here = Profiles.joined(here, unit(rows, number))
        unit(rows, number).write(str(tmp_path / "unit"))
        there = Profiles.joined(there, Profiles.read(str(tmp_path / "unit")))
    one, other = (found.statistics.to_bytes() for found in (here, there) if found and found.statistics)
    assert one == other  # whether they stay in memory or come from files
    (tmp_path / "unit").unlink()
    (tmp_path / "unit").mkdir()
    with pytest.raises(OSError, match="unit"):  # as from a disk that refuses
        unit(7, 1).write(str(tmp_path / "unit"))
    assert os.listdir(tmp_path) == ["unit"]


def test_a_thousand_columns_in_bounded_bytes() -> None:
    draw = np.random.default_rng(5)
    vector = Column("v", "numbers", "numeric", "feature", tuple(f"v[{i}]" for i in range(1000)))
    matrix = draw.normal(size=(2000, 1000)).astype(np.float32)
    splits = draw.integers(0, 3, 2000).astype(np.int8)
    found = collected([(pa.RecordBatch.from_pydict({"v": column_of(matrix)}), splits)], (vector,))
    assert len(found.to_bytes()) < 3 * 1000 * 8000
    told = describe(found)
    assert [item["name"] for item in told["features"]][::500] == ["v[0]", "v[500]"]
    for i in (0, 7, 999):
        for split, rows in ((name, splits == j) for j, name in enumerate(SPLITS)):
            item = told["features"][i]["splits"][split]
            assert item["mean"] == pytest.approx(matrix[rows, i].mean(dtype=float))
            assert item["max"] == matrix[rows, i].max()


def test_a_vector_of_very_many_columns_is_described_as_one() -> None:
    schema = SCHEMA.replace("columns: [p0, p2]", "columns: [p0, p9999]")
    point = next(column for column in columns_of(table_schema(schema)) if column.name == "point")
    assert point.names == ("point",)
    matrix = np.arange(20_000, dtype=np.float32).reshape(2, -1)
    matrix[0, :5] = np.nan
    found = collected([(pa.RecordBatch.from_pydict({"point": column_of(matrix)}), np.zeros(2, np.int8))], (point,))
    item = describe(found)["features"][0]["splits"]["train"]
    assert (item["count"], item["missing"], item["min"], item["max"]) == (19_995, 5, 5, 19_999)


def test_what_is_described_of_a_schema() -> None:
    found = {column.name: column for column in columns_of(table_schema(SCHEMA))}
    assert "note" not in found  # ignored, and so not decoded
    assert "city_x_grade" not in found
    assert found["point"].names == ("point[p0]", "point[p1]", "point[p2]")
    assert found["pet"].values == ("pet0", "pet1", "pet2")
    told = [(found[name].role, found[name].reads) for name in ("id", "w", "y", "age")]
    assert told == [("key", "strings"), ("weight", "numbers"), ("label", "strings"), ("feature", "numbers")]


CELLS = st.sampled_from([0.0, -0.0, 1, 2, 254, 255, 256, 0.5, -1, np.nan])
ROW = st.tuples(st.sampled_from([0, 2]), CELLS, CELLS, CELLS)
VECTOR = Column("v", "numbers", "numeric", "feature", ("v[0]", "v[1]", "v[2]"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=9), min_size=1), st.booleans(), st.integers(0, 400))
def test_vectors_are_those_of_a_loop(lists: list[list[tuple[float, ...]]], small: bool, waiting: int) -> None:
    """Small whole numbers, which are counted, and others, which are sorted, in whatever batches and parts."""
    tables = [np.array(some) for some in lists]
    for table in tables if small else ():
        table[:, 1:] = np.where(np.isnan(table[:, 1:]), 3, abs(table[:, 1:]) // 1 % 256)
    batches = [
        (pa.RecordBatch.from_pydict({"v": column_of(table[:, 1:].astype(np.float32))}), table[:, 0].astype(np.int8))
        for table in tables
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "WAITING_BYTES", waiting)
        found, other = (collected(batches[i::2], (VECTOR,)) for i in (0, 1))
        found.merge(other)
    told, every = describe(found), np.concatenate(tables)
    for (name, held), place in itertools.product(told["splits"].items(), range(3)):
        column = every[every[:, 0] == SPLITS.index(name), place + 1] + 0.0
        values, one = column[~np.isnan(column)], told["features"][place]["splits"][name]
        counts = collections.Counter(values.tolist())
        assert (held["rows"], one["count"], one["missing"]) == (len(column), len(values), np.isnan(column).sum())
        if len(values):
            assert (one["min"], one["max"], one["zeros"]) == (values.min(), values.max(), counts[0])
            assert (one["mean"], one["std"]) == pytest.approx((values.mean(), values.std()), rel=1e-12, abs=1e-12)
            assert (one["distinct"], one["distinct_exact"]) == (len(counts), True)
            assert {top["value"]: top["count"] for top in one["top_values"]} == counts
            assert one["quantiles"]["values"] == np.quantile(values, RANKS, method="inverted_cdf").tolist()


PROTO_COLUMNS = (
    Column("x", "numbers", "numeric", "feature", ("x[0]", "x[1]")),
    Column("s", "strings", "category", "label", ("s",)),
)


def test_the_proto_is_what_tensorflow_data_validation_reads() -> None:
    statistics, kinds = Statistics(PROTO_COLUMNS), statistics_pb2.FeatureNameStatistics
    for split, rows in (("train", 1000), ("test", 10)):
        statistics.rows[split] = rows
        statistics.summary(Numbers, split, "x[0]").merge(numbers_of(np.append(np.arange(1, rows), np.nan)))
        statistics.summary(Numbers, split, "x[1]").merge(numbers_of(np.full(rows, np.nan)))
        words = pa.array([b"a", "é".encode()], pa.binary())
        statistics.summary(Strings, split, "s").add(words, np.array([rows - 3, 2]), 1)
    proto = statistics_pb2.DatasetFeatureStatisticsList.FromString(to_proto(statistics).SerializeToString())
    assert [(d.name, d.num_examples) for d in proto.datasets] == [("train", 1000), ("test", 10)]
    for dataset in proto.datasets:
        assert [list(feature.path.step) for feature in dataset.features] == [["x[0]"], ["x[1]"], ["s"]]
        assert [feature.type for feature in dataset.features] == [kinds.FLOAT, kinds.FLOAT, kinds.STRING]
    numbers, empty, strings = proto.datasets[0].features

    stats, common, values = numbers.num_stats, numbers.num_stats.common_stats, np.arange(1, 1000)
    assert (common.num_non_missing, common.num_missing, common.tot_num_values, common.max_num_values) == (
        999,
        1,
        999,
        1,
    )
    assert (stats.mean, stats.std_dev) == pytest.approx((values.mean(), values.std()))
    assert (stats.min, stats.median, stats.max, stats.num_zeros) == (1, 500, 999, 0)
    of = statistics_pb2.Histogram
    assert [histogram.type for histogram in stats.histograms] == [of.STANDARD, of.QUANTILES]
    for buckets in (histogram.buckets for histogram in stats.histograms):
        assert (buckets[0].low_value, buckets[-1].high_value) == (1, 999)
        assert sum(bucket.sample_count for bucket in buckets) == pytest.approx(999)
        assert [bucket.high_value for bucket in buckets[:-1]] == [bucket.low_value for bucket in buckets[1:]]

    common = empty.num_stats.common_stats
    assert (common.num_non_missing, common.num_missing, len(empty.num_stats.histograms)) == (0, 1000, 0)
    told = strings.string_stats
    assert (told.unique, told.avg_length) == (2, 1)
    assert [(top.value, top.frequency) for top in told.top_values] == [("a", 997), ("é", 2)]
    assert [bucket.label for bucket in told.rank_histogram.buckets] == ["a", "é"]


SIZES = Sizes.of(10)
MANY = 120_000


def numbers_of(values: np.ndarray, *, bundles: int = 1) -> Numbers:
    """Of float32 values, NaN where one is missing, dealt to bundles and merged."""
    total = Numbers.empty(SIZES)
    for some in np.array_split(values.astype(np.float32), bundles):
        part = Numbers.empty(SIZES)
        present = np.sort(some[~np.isnan(some)])
        part.missing = len(some) - len(present)
        add_numbers([part], present[None])
        total.merge(part)
    return total


def described(values: np.ndarray, *, bundles: int = 1) -> dict[str, Any]:
    (told,) = describe_numbers([numbers_of(values, bundles=bundles)], 20)
    return told


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
    found = numbers_of(values, bundles=bundles)
    wide = values.astype(np.float64)
    assert (found.count, found.missing, found.zeros) == (MANY, 0, int((values == 0).sum()))
    assert (found.low, found.high) == (wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-9)
    assert found.std == pytest.approx(wide.std(), rel=1e-9)

    ordered, ranks = np.sort(wide), np.linspace(0, 1, 101)
    quantiles = Distributions([found]).at(ranks)[0]
    low, high = (np.searchsorted(ordered, quantiles, side) / MANY for side in ("left", "right"))
    off = np.maximum(0, np.maximum(low - ranks, ranks - high))
    assert off.max() <= (1.5 / MANY if found.quantiles_exact else 0.01)
    assert quantiles[[0, -1]].tolist() == [wide.min(), wide.max()]

    edges, counts = Distributions([found]).histograms()[0]
    expected, _ = np.histogram(wide, edges)
    assert counts.sum() == MANY
    assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= (0 if found.quantiles_exact else 0.01 * MANY)

    distinct = len(np.unique(values))
    (told,) = describe_numbers([found], 20)
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), min_size=1))
def test_columns_that_are_searched_together_are_those_searched_alone(lists: list[list[float]]) -> None:
    columns = [np.sort(np.array(some, np.float32)) for some in lists]
    found = Distributions([numbers_of(some) for some in columns])
    points = np.array([[some[0], some[-1], 0, -np.inf, np.inf] for some in columns], np.float32)
    shares = [[np.mean(some <= point) for point in row] for some, row in zip(columns, points, strict=True)]
    np.testing.assert_allclose(found.up_to(points), shares)
    ranks = np.array([0, 0.2, 0.5, 1])
    quantiles = [np.quantile(some.astype(np.float64), ranks, method="inverted_cdf") for some in columns]
    np.testing.assert_array_equal(found.at(ranks), quantiles)
    for some, (edges, counts) in zip(columns, found.histograms(), strict=True):
        assert counts.sum() == len(some)
        assert counts[0] == ((some < edges[1]).sum() if len(counts) > 1 else len(some))


@pytest.mark.parametrize("count", [*range(1, 20), 399, 400, 401, 800, 6419, 100_000])
def test_a_sketch_of_sorted_numbers_stands_for_all_of_them(count: int) -> None:
    found = Quantiles()
    places, sizes = places_held(count)
    found.add(np.arange(count, dtype=np.float32)[places], sizes)
    assert found.weights.sum() == count
    order = np.argsort(found.items)
    upto = np.cumsum(found.weights[order])
    off = np.maximum(abs(upto - 1 - found.items[order]), abs(found.items[order] - (upto - found.weights[order])))
    assert off.max() <= count / 400
    assert found.exact == (count <= 400)


def test_equal_jobs_have_equal_sketches_and_small_bundles_stay_within_the_rank_error() -> None:
    values = np.random.default_rng(11).normal(size=200_000)
    one, other = numbers_of(values, bundles=2000), numbers_of(values, bundles=2000)
    assert one.quantiles.items.tobytes() == other.quantiles.items.tobytes()
    assert one.quantiles.weights.sum() == len(values)
    assert len(one.quantiles.items) <= HELD
    ranks = np.linspace(0, 1, 1001)
    off = np.searchsorted(np.sort(values.astype(np.float32)), Distributions([one]).at(ranks)[0]) / len(values) - ranks
    assert np.quantile(abs(off), 0.99) <= RANK_ERROR


@pytest.mark.parametrize("count", [0, 1, 2, 300, 5000, 70_000])
def test_quantiles_that_an_earlier_release_wrote(count: int) -> None:
    sketch = datasketches.kll_floats_sketch(400)
    sketch.update(np.random.default_rng(2).normal(size=count).astype(np.float32))
    found = Quantiles.of_datasketches(bytes(sketch.serialize()))
    assert sorted(zip(found.items.tolist(), found.weights.tolist(), strict=True)) == sorted(sketch)
    assert found.exact == (not sketch.is_estimation_mode())


@pytest.mark.parametrize("path", sorted(OF_0_2.rglob("statistics.arrow")), ids=lambda path: path.parent.name)
def test_statistics_of_0_2_are_described_as_it_described_them(path: Path) -> None:
    found = Statistics.from_bytes(path.read_bytes())
    written = json.loads(path.with_suffix(".json").read_text())
    for told in (describe(found), describe(Statistics.from_bytes(found.to_bytes()))):
        assert told["splits"] == written["splits"]
        assert [item["splits"] for item in told["features"]] == [item["splits"] for item in written["features"]]
    rows = dict(found.rows)
    found.merge(Statistics.from_bytes(path.read_bytes()))
    assert describe(found)["splits"].keys() == rows.keys()
    assert found.rows == {split: 2 * count for split, count in rows.items()}


MOST = float(np.finfo(np.float32).max)
SINGLE: dict[str, Any] = {"quantiles": {"ranks": list(RANKS), "values": [4.5] * len(RANKS), "exact": True}}
SINGLE |= {"histogram": {"edges": [4.5, 4.5], "counts": [1]}, "top_values": [{"value": 4.5, "count": 1}]}
NO_TEXT = [{"value": "\ufffd\ufffd", "count": 2}, {"value": "ok", "count": 1}]


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
    for bundles in (1, 2, 3):
        told = described(np.array(values, np.float32), bundles=bundles)
        assert {name: told[name] for name in expected} == expected
        assert sum(told.get("histogram", {"counts": []})["counts"]) == told["count"]
        assert np.isfinite([told[name] for name in ("mean", "std") if name in told]).all()


def test_neighbouring_numbers_have_a_histogram() -> None:
    """Most edges between them are no different as float32."""
    low = np.float32(1)
    values = np.repeat(np.array([low, np.nextafter(low, np.float32(2))]), [3, 5])
    assert Distributions([numbers_of(values)]).histograms()[0][1].tolist()[:: BINS - 1] == [3, 5]
    draw = np.linspace(1e7, 1e7 + 3000, 5000, dtype=np.float32)  # too many for exact counts, and few float32 between
    _, counts = Distributions([numbers_of(draw)]).histograms()[0]
    assert counts.sum() == 5000
    assert (counts >= 0).all()


def strings_of(values: list[str], *, bundles: int) -> Strings:
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
    told = strings_of(values, bundles=bundles).describe(top=20)
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
    told = strings_of(values, bundles=bundles).describe(top=20)
    true = collections.Counter(values)
    assert not told["distinct_exact"]
    assert told["distinct"] == pytest.approx(len(true), rel=0.12)  # four standard errors of 1 / sqrt(1022)
    assert 0 < told["top_values_error"] <= 100_000 / (SIZES.frequent + 1)
    for top in told["top_values"]:
        assert top["count"] <= true[top["value"]] <= top["count"] + told["top_values_error"]
    assert [top["value"] for top in told["top_values"]][:3] == [value for value, _ in true.most_common(3)]


def test_long_values_are_cut_where_they_are_counted_and_nowhere_else() -> None:
    values = ["x" * 5000 + str(i % 3) for i in range(30)] + ["short"] * 5 + ["é" * 80] * 2
    found = strings_of(values, bundles=2)
    told = found.describe(top=20)
    assert told["top_values"][0] == {"value": "x" * CUT, "count": 30}
    assert told["distinct"] == 5
    assert told["length"]["max"] == 5001
    assert found.frequent.values.nbytes < 2000


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
    found = Strings.empty(SIZES)
    found.add(pa.array(values, pa.binary()), np.array(counts, np.int64), missing)
    told = found.describe(top=20)
    assert {name: told[name] for name in expected} == expected
    assert told.get("distinct", 0) == pytest.approx(len(values), rel=0.12)


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_too_low_by_the_error_at_most(seed: int) -> None:
    """Whatever the order of additions and merges; a value that is not held counts as 0."""
    draw = random.Random(seed)
    limit, true, parts = 8, collections.Counter[bytes](), []
    for _ in range(draw.randrange(1, 6)):
        part = Frequent(limit, pa.nulls(0, pa.binary()))
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
    profile = ColumnProfile(1000)
    for start in range(0, len(cells), 4):
        part = [cell.encode() for cell in cells[start : start + 4]]
        profile.add(pa.array(part, pa.binary()), splitmix64(start, len(part)))
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
    values = [b"", b"\0", b"\0\0", b"a", b"b", b"ab", b"ba", b"a" * 70_000, b"a" * 70_001]
    values += [str(i).encode() for i in range(5000)]
    hashes = value_hashes(pa.array(values, pa.binary()))
    assert len(set(hashes.tolist())) == len(values)
    assert (value_hashes(pa.array([b"zz", *values], pa.binary()).slice(1)) == hashes).all()


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
