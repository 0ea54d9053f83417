"""Statistics as a DatasetFeatureStatisticsList of tensorflow_metadata, which Data Validation and Facets read."""

from __future__ import annotations

import itertools

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from beam_jobs.statistics.describe import TOP
from beam_jobs.statistics.numbers import Numbers
from beam_jobs.statistics.state import Statistics, Summary
from beam_jobs.statistics.strings import Strings
from schemas.spec.table import SPLITS

BUCKETS = 10  # of histograms, as TensorFlow Data Validation makes them


def to_proto(statistics: Statistics) -> statistics_pb2.DatasetFeatureStatisticsList:
    """A dataset for each split. The statistics are those of raw values; features are called as in `describe`."""
    found = statistics_pb2.DatasetFeatureStatisticsList()
    for split in (split for split in SPLITS if split in statistics.rows):
        dataset = found.datasets.add(name=split, num_examples=statistics.rows[split])
        for column in statistics.columns:
            for name in column.names:
                _add(dataset.features.add(path={"step": [name]}), statistics.summaries[split, name])
    return found


def _add(feature: statistics_pb2.FeatureNameStatistics, summary: Summary) -> None:
    if isinstance(summary, Numbers):
        feature.type = statistics_pb2.FeatureNameStatistics.FLOAT
        _common(feature.num_stats.common_stats, summary)
        if summary.count:
            _add_numbers(feature.num_stats, summary)
    else:
        feature.type = statistics_pb2.FeatureNameStatistics.STRING
        _common(feature.string_stats.common_stats, summary)
        if summary.count:
            _add_strings(feature.string_stats, summary)


def _common(common: statistics_pb2.CommonStatistics, summary: Summary) -> None:
    common.num_non_missing = common.tot_num_values = summary.count
    common.num_missing = summary.missing
    if summary.count:
        common.min_num_values = common.max_num_values = 1
        common.avg_num_values = 1.0


def _add_numbers(stats: statistics_pb2.NumericStatistics, numbers: Numbers) -> None:
    stats.mean, stats.std_dev = numbers.mean, numbers.std
    stats.min, stats.max = numbers.low, numbers.high
    stats.num_zeros = numbers.zeros
    stats.median = float(numbers.at(np.array([0.5]))[0])
    edges, counts = numbers.histogram(BUCKETS)
    equal = stats.histograms.add(type=statistics_pb2.Histogram.STANDARD)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        equal.buckets.add(low_value=low, high_value=high, sample_count=float(count))
    points = numbers.at(np.linspace(0, 1, BUCKETS + 1))
    quantiles = stats.histograms.add(type=statistics_pb2.Histogram.QUANTILES)
    for low, high in itertools.pairwise(points.tolist()):
        quantiles.buckets.add(low_value=low, high_value=high, sample_count=numbers.count / BUCKETS)


def _add_strings(stats: statistics_pb2.StringStatistics, strings: Strings) -> None:
    told = strings.describe(TOP)
    stats.unique = told["distinct"]
    stats.avg_length = told["length"]["mean"]
    for rank, top in enumerate(told["top_values"]):
        stats.top_values.add(value=top["value"], frequency=top["count"])
        bucket = stats.rank_histogram.buckets.add(label=top["value"], sample_count=top["count"])
        bucket.low_rank = bucket.high_rank = rank
