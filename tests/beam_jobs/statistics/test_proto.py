"""The statistics as a protobuf: it parses, and its fields hold what TensorFlow Data Validation would put there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from schemas.profile.columns import Column
from schemas.profile.statistics import Statistics
from schemas.profile.statistics_files import to_proto
from schemas.profile.summaries import Numbers, Strings

COLUMNS = (
    Column("x", "numbers", "numeric", "feature", ("x[0]", "x[1]")),
    Column("s", "strings", "category", "label", ("s",)),
)


@pytest.fixture(scope="module")
def proto() -> statistics_pb2.DatasetFeatureStatisticsList:
    statistics = Statistics(COLUMNS)
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
