"""Statistics as JSON values: what `statistics.json` holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from schemas.dataset import layout
from schemas.dataset.statistics import FORMAT_VERSION
from schemas.profile.columns import Numbers, Strings
from schemas.profile.distributions import Distributions, describe_numbers
from schemas.profile.sketches import RANK_ERROR
from schemas.profile.statistics import Place, Statistics, Summary, described_channels
from schemas.spec.table import SPLITS
from schemas.storage import folders

TOP = 20  # frequent values that are listed


def describe(statistics: Statistics) -> dict[str, Any]:
    """The statistics of all splits, feature by feature in the schema's order. See docs/statistics.md for the keys."""
    splits = [split for split in SPLITS if split in statistics.rows]
    described = _described(statistics)
    return {
        "format_version": FORMAT_VERSION,
        "sketches": {
            "rank_error": RANK_ERROR,
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
                "splits": {split: described[split, name] for split in splits},
            }
            for column in statistics.columns
            for name in column.names
        ],
    }


def _split(statistics: Statistics, split: str) -> dict[str, Any]:
    told: dict[str, Any] = {"rows": statistics.rows[split]}
    channels = described_channels(statistics, split)
    return told | ({"channels": channels} if channels else {})


def _described(statistics: Statistics) -> dict[Place, dict[str, Any]]:
    """Each summary as JSON values."""
    numbers = {place: summary for place, summary in statistics.summaries.items() if isinstance(summary, Numbers)}
    strings = {place: summary for place, summary in statistics.summaries.items() if isinstance(summary, Strings)}
    return dict(zip(numbers, describe_numbers([*numbers.values()], TOP), strict=True)) | {
        place: summary.describe(TOP) for place, summary in strings.items()
    }


BUCKETS = 10  # of histograms, as TensorFlow Data Validation makes them


def to_proto(statistics: Statistics) -> statistics_pb2.DatasetFeatureStatisticsList:
    """A dataset for each split. The statistics are those of raw values; features are called as in `describe`."""
    found = statistics_pb2.DatasetFeatureStatisticsList()
    splits = [split for split in SPLITS if split in statistics.rows]
    places = [(split, column, name) for split in splits for column in statistics.columns for name in column.names]
    summaries = [statistics.summaries[split, name] for split, _, name in places]
    shapes = _shapes([summary for summary in summaries if isinstance(summary, Numbers) and summary.count])
    datasets = {split: found.datasets.add(name=split, num_examples=statistics.rows[split]) for split in splits}
    for (split, _, name), summary in zip(places, summaries, strict=True):
        feature = datasets[split].features.add(path={"step": [name]})
        if isinstance(summary, Numbers):
            feature.type = statistics_pb2.FeatureNameStatistics.FLOAT
            _common(feature.num_stats.common_stats, summary)
            if summary.count:
                _add_numbers(feature.num_stats, summary, *next(shapes))
        else:
            feature.type = statistics_pb2.FeatureNameStatistics.STRING
            _common(feature.string_stats.common_stats, summary)
            if summary.count:
                _add_strings(feature.string_stats, summary)
    return found


def _shapes(numbers: Sequence[Numbers]) -> Iterator[tuple[float, bytes, bytes]]:
    """Of each column, the median, the buckets of a histogram, and those of quantiles."""
    values = Distributions(numbers)
    quantiles = values.at(np.linspace(0, 1, BUCKETS + 1))
    shares = np.repeat(values.counts / BUCKETS, BUCKETS)
    of_quantiles = _buckets(quantiles[:, :-1].ravel(), quantiles[:, 1:].ravel(), shares)
    found = values.histograms(BUCKETS)
    lows, highs, counts = (
        (
            np.concatenate([np.empty(0), *parts])
            for parts in zip(*((edges[:-1], edges[1:], some) for edges, some in found), strict=True)
        )
        if found
        else (np.empty(0),) * 3
    )
    equal, at = _buckets(lows, highs, counts), 0
    for i, (_, some) in enumerate(found):
        rows = slice(i * BUCKETS, (i + 1) * BUCKETS)
        yield float(quantiles[i, BUCKETS // 2]), equal[at : at + len(some)].tobytes(), of_quantiles[rows].tobytes()
        at += len(some)


_BUCKET = np.dtype(  # of a Histogram, as protobuf writes it: a call for each of 20 buckets of a column took longest
    [("head", "V2"), ("of_low", "u1"), ("low", "<f8"), ("of_high", "u1"), ("high", "<f8"), ("of_n", "u1"), ("n", "<f8")]
)


def _buckets(low: np.ndarray, high: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Buckets as fields 3 of a `statistics_pb2.Histogram`, each with the fields 1, 2 and 4 of its own."""
    found = np.empty(len(low), _BUCKET)
    found["head"] = bytes([3 << 3 | 2, _BUCKET.itemsize - 2])
    found["of_low"], found["of_high"], found["of_n"] = (number << 3 | 1 for number in (1, 2, 4))
    found["low"], found["high"], found["n"] = low, high, count
    return found


def _common(common: statistics_pb2.CommonStatistics, summary: Summary) -> None:
    common.num_non_missing = common.tot_num_values = summary.count
    common.num_missing = summary.missing
    if summary.count:
        common.min_num_values = common.max_num_values = 1
        common.avg_num_values = 1.0


def _add_numbers(
    stats: statistics_pb2.NumericStatistics, numbers: Numbers, median: float, equal: bytes, quantiles: bytes
) -> None:
    stats.mean, stats.std_dev = numbers.mean, numbers.std
    stats.min, stats.max = numbers.low, numbers.high
    stats.num_zeros = numbers.zeros
    stats.median = median
    stats.histograms.add(type=statistics_pb2.Histogram.STANDARD).MergeFromString(equal)
    stats.histograms.add(type=statistics_pb2.Histogram.QUANTILES).MergeFromString(quantiles)


def _add_strings(stats: statistics_pb2.StringStatistics, strings: Strings) -> None:
    told = strings.describe(TOP)
    stats.unique = told["distinct"]
    stats.avg_length = told["length"]["mean"]
    for rank, top in enumerate(told["top_values"]):
        stats.top_values.add(value=top["value"], frequency=top["count"])
        bucket = stats.rank_histogram.buckets.add(label=top["value"], sample_count=top["count"])
        bucket.low_rank = bucket.high_rank = rank


def place(run_dir: str, statistics: Statistics) -> dict[str, Any]:
    """Writes the statistics to a run, for programs (JSON, protobuf) and for merging (the sketches).

    Processes that commit the same run write the same bytes. Returns the values of `statistics.json`.
    """
    described = describe(statistics)
    for name, data in (
        (layout.STATISTICS_SKETCHES, statistics.to_bytes()),
        (layout.STATISTICS_PB, to_proto(statistics).SerializeToString(deterministic=True)),
        (layout.STATISTICS_JSON, json.dumps(described, allow_nan=False).encode() + b"\n"),
    ):
        folders.create(layout.join(run_dir, name), data)
    return described
