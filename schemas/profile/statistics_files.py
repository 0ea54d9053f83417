"""Statistics as JSON values: what `statistics.json` holds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from schemas.dataset import layout
from schemas.dataset.statistics import FORMAT_VERSION
from schemas.profile.columns import Numbers, Strings
from schemas.profile.sketches import KLL_K
from schemas.profile.statistics import Statistics, Summary, described_channels
from schemas.spec.table import SPLITS
from schemas.storage import folders

TOP = 20  # frequent values that are listed


def describe(statistics: Statistics) -> dict[str, Any]:
    """The statistics of all splits, feature by feature in the schema's order. See docs/statistics.md for the keys."""
    splits = [split for split in SPLITS if split in statistics.rows]
    return {
        "format_version": FORMAT_VERSION,
        "sketches": {
            "rank_error": rank_error(),
            "distinct_values": statistics.sizes.distinct,
            "frequent_values": statistics.sizes.frequent,
        },
        "splits": {split: _split(statistics, split) for split in splits},
        "features": [
            {
                "name": name,
                "feature": column.name,
                "kind": column.kind,
                "role": column.role,
                "type": "number" if column.reads == "numbers" else "string",
                "splits": {split: statistics.summaries[split, name].describe(TOP) for split in splits},
            }
            for column in statistics.columns
            for name in column.names
        ],
    }


def _split(statistics: Statistics, split: str) -> dict[str, Any]:
    told: dict[str, Any] = {"rows": statistics.rows[split]}
    channels = described_channels(statistics, split)
    return told | ({"channels": channels} if channels else {})


def rank_error() -> float:
    """How far a quantile's rank may be off, as a fraction of all values, with 99 % confidence."""
    import datasketches

    return float(datasketches.kll_floats_sketch.get_normalized_rank_error(KLL_K, False))


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


def place(run_dir: str, statistics: Statistics, sketches: bytes) -> dict[str, Any]:
    """Writes the statistics to a run, for programs (JSON, protobuf) and for merging (the sketches).

    `sketches` are the bytes of `statistics`. Processes that commit the same run write the same bytes. Returns the
    values of `statistics.json`.
    """
    described = describe(statistics)
    for name, data in (
        (layout.STATISTICS_SKETCHES, sketches),
        (layout.STATISTICS_PB, to_proto(statistics).SerializeToString(deterministic=True)),
        (layout.STATISTICS_JSON, json.dumps(described, allow_nan=False).encode() + b"\n"),
    ):
        folders.create(layout.join(run_dir, name), data)
    return described
