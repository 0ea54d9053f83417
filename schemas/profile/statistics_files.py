"""Statistics as JSON values, which `statistics.json` holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from schemas.dataset import layout
from schemas.dataset.statistics import FORMAT_VERSION
from schemas.profile.distributions import Distribution
from schemas.profile.sketches import RANK_ERROR
from schemas.profile.statistics import Statistics
from schemas.profile.summary import Summary
from schemas.spec.table import SPLITS
from schemas.storage import folders

TOP = 20  # frequent values that are listed
RANKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)  # of the quantiles that are reported


def describe(statistics: Statistics) -> dict[str, Any]:
    """The statistics of all splits, feature by feature in the schema's order. See docs/statistics.md for the keys."""
    splits = [split for split in SPLITS if split in statistics.rows]
    summaries = statistics.summaries
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
                "splits": {split: describe_summary(summaries[split, name]) for split in splits},
            }
            for column in statistics.columns
            for name in column.names
        ],
    }


def _split(statistics: Statistics, split: str) -> dict[str, Any]:
    channels = statistics.described_channels(split)
    return {"rows": statistics.rows[split]} | ({"channels": channels} if channels else {})


def describe_summary(summary: Summary) -> dict[str, Any]:
    """The statistics of a column as JSON values."""
    counts = {"count": summary.count, "missing": summary.missing}
    if not summary.count:
        return counts
    moments = summary.moments
    distinct = {"distinct": summary.distinct, "distinct_exact": summary.distinct_exact}
    top = summary.frequent.top(TOP)
    error = {"top_values_error": summary.frequent.error}
    if not summary.numeric:
        lengths = {"mean": moments.mean, "min": int(moments.low), "max": int(moments.high)}
        top = [(value.decode(errors="replace"), count) for value, count in top]
        return counts | distinct | {"length": lengths, "top_values": _listed(top)} | error
    values = Distribution(summary)
    edges, bins = values.histogram()
    return {
        **counts,
        "mean": moments.mean,
        "std": moments.deviation,
        "min": moments.low,
        "max": moments.high,
        "zeros": summary.zeros,
        **distinct,
        "quantiles": {
            "ranks": list(RANKS),
            "values": values.at(np.array(RANKS)).tolist(),
            "exact": summary.quantiles_exact,
        },
        "histogram": {"edges": edges.tolist(), "counts": bins.tolist()},
        "top_values": _listed(top),
        **error,
    }


def _listed(top: Iterable[tuple[Any, int]]) -> list[dict[str, Any]]:
    return [{"value": value, "count": count} for value, count in top]


def place(run_dir: str, statistics: Statistics) -> dict[str, Any]:
    """Writes the statistics to a run, for programs (JSON) and for merging (the sketches).

    Processes that commit the same run write the same bytes. Returns the values of `statistics.json`.
    """
    described = describe(statistics)
    for name, data in (
        (layout.STATISTICS_SKETCHES, statistics.to_bytes()),
        (layout.STATISTICS_JSON, json.dumps(described, allow_nan=False).encode() + b"\n"),
    ):
        folders.create(layout.join(run_dir, name), data)
    return described
