"""Batches of raw columns to statistics by split: bundles, vectors, one-hot groups, many columns, and the bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from beam_jobs.profiles import MergeProfiles
from schemas.profile import statistics
from schemas.profile.columns import RAW, Column, Numbers, Strings, columns_of, raw_apart
from schemas.profile.statistics import Statistics
from schemas.profile.statistics_files import describe, to_proto
from schemas.spec.table import SPLITS
from tests.support.csv_reading import table_schema
from tests.support.people import SCHEMA
from tests.support.samples import column_of

NUMBER = Column("x", "numbers", "numeric", "feature", ("x",))
WORD = Column("s", "strings", "category", "label", ("s",), missing=("?", ""))
PET = Column("pet", "one_hot", "one_hot", "feature", ("pet",), values=("cat", "dog", "eel"))
COLUMNS = (NUMBER, WORD, PET)


def batch(rows: int, seed: int) -> tuple[pa.RecordBatch, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random(rows) < 0.2, np.nan, draw.integers(0, 50, rows)).astype(np.float32)[:, None]
    words = [[b" Oslo", b"Oslo ", b"?", b"", b"Rom"][i] for i in draw.integers(0, 5, rows)]
    pets = np.eye(3, dtype=np.float32)[draw.integers(0, 3, rows)]
    found = pa.RecordBatch.from_pydict({"x": column_of(x), "s": column_of(words), "pet": column_of(pets)})
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
    x, s, pet = told["features"]
    for i, name in ((0, "train"), (2, "test")):
        rows = np.flatnonzero(splits == i)
        values = np.asarray(found.column("x").flatten())[rows]
        assert told["splits"][name] == {"rows": len(rows)}
        assert x["splits"][name]["missing"] == np.isnan(values).sum()
        assert x["splits"][name]["mean"] == pytest.approx(np.nanmean(values.astype(float)))
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
    assert [(found[name].role, found[name].reads) for name in ("id", "w", "y", "age")] == [
        ("key", "strings"),
        ("weight", "numbers"),
        ("label", "strings"),
        ("feature", "numbers"),
    ]


def test_the_columns_for_the_statistics_are_taken_apart_from_the_others() -> None:
    both = pa.RecordBatch.from_pydict({"x": [[1.0]], RAW + "x": [[7.0]]})
    rest, raw = raw_apart(both)
    assert rest.to_pydict() == {"x": [[1.0]]}
    assert raw.to_pydict() == {"x": [[7.0]]}


def test_a_single_record_with_a_vector() -> None:
    vector = Column("v", "numbers", "numeric", "feature", ("v[0]", "v[1]", "v[2]"))
    values = column_of(np.array([[7, np.nan, -1]], np.float32))
    told = describe(collected([(pa.RecordBatch.from_pydict({"v": values}), np.zeros(1, np.int8))], (vector,)))
    assert [item["splits"]["train"].get("max") for item in told["features"]] == [7, None, -1]


PROTO_COLUMNS = (
    Column("x", "numbers", "numeric", "feature", ("x[0]", "x[1]")),
    Column("s", "strings", "category", "label", ("s",)),
)


@pytest.fixture(scope="module")
def proto() -> statistics_pb2.DatasetFeatureStatisticsList:
    statistics = Statistics(PROTO_COLUMNS)
    for split, rows in (("train", 1000), ("test", 10)):
        statistics.rows[split] = rows
        statistics.summary(Numbers, split, "x[0]").add(np.arange(1, rows, dtype=np.float32), 1)
        statistics.summary(Numbers, split, "x[1]").add(np.empty(0, np.float32), rows)
        words = pa.array([b"a", "é".encode()], pa.binary())
        statistics.summary(Strings, split, "s").add(words, np.array([rows - 3, 2]), 1)
    return statistics_pb2.DatasetFeatureStatisticsList.FromString(to_proto(statistics).SerializeToString())


def test_datasets_are_splits_and_features_have_paths(proto: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    assert [(d.name, d.num_examples) for d in proto.datasets] == [("train", 1000), ("test", 10)]
    for dataset in proto.datasets:
        assert [list(feature.path.step) for feature in dataset.features] == [["x[0]"], ["x[1]"], ["s"]]


def test_numbers(proto: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    feature = proto.datasets[0].features[0]
    stats, values = feature.num_stats, np.arange(1, 1000)
    assert feature.type == statistics_pb2.FeatureNameStatistics.FLOAT
    assert (stats.common_stats.num_non_missing, stats.common_stats.num_missing) == (999, 1)
    assert (stats.common_stats.tot_num_values, stats.common_stats.max_num_values) == (999, 1)
    assert (stats.mean, stats.std_dev) == pytest.approx((values.mean(), values.std()))
    assert (stats.min, stats.median, stats.max, stats.num_zeros) == (1, 500, 999, 0)
    equal, quantiles = stats.histograms
    assert (equal.type, quantiles.type) == (statistics_pb2.Histogram.STANDARD, statistics_pb2.Histogram.QUANTILES)
    for histogram in stats.histograms:
        assert (histogram.buckets[0].low_value, histogram.buckets[-1].high_value) == (1, 999)
        assert sum(bucket.sample_count for bucket in histogram.buckets) == pytest.approx(999)
        for one, following in zip(histogram.buckets[:-1], histogram.buckets[1:], strict=True):
            assert one.high_value == following.low_value


def test_a_column_without_values(proto: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    stats = proto.datasets[0].features[1].num_stats
    assert (stats.common_stats.num_non_missing, stats.common_stats.num_missing) == (0, 1000)
    assert not stats.histograms


def test_strings(proto: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    feature = proto.datasets[0].features[2]
    assert feature.type == statistics_pb2.FeatureNameStatistics.STRING
    assert (feature.string_stats.unique, feature.string_stats.avg_length) == (2, 1)
    assert [(top.value, top.frequency) for top in feature.string_stats.top_values] == [("a", 997), ("é", 2)]
    assert [bucket.label for bucket in feature.string_stats.rank_histogram.buckets] == ["a", "é"]
