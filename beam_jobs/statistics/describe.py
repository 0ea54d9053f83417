"""Statistics as JSON values: what `statistics.json` holds."""

from __future__ import annotations

from typing import Any

from beam_jobs.statistics.sketches import KLL_K
from beam_jobs.statistics.state import Statistics
from schemas.dataset.statistics import FORMAT_VERSION
from schemas.spec.table import SPLITS

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
        "splits": {split: {"rows": statistics.rows[split]} | _channels(statistics, split) for split in splits},
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


def _channels(statistics: Statistics, split: str) -> dict[str, Any]:
    told = {
        prefix: channels.describe() for (at, prefix), channels in sorted(statistics.channels.items()) if at == split
    }
    return {"channels": {prefix.strip("/") or "image": found for prefix, found in told.items()}} if told else {}


def rank_error() -> float:
    """How far a quantile's rank may be off, as a fraction of all values, with 99 % confidence."""
    import datasketches

    return float(datasketches.kll_floats_sketch.get_normalized_rank_error(KLL_K, False))
