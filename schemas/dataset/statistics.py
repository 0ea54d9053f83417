"""Reads the statistics that a job wrote with its dataset, selects some of them, and prints them as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from schemas.dataset import layout
from schemas.dataset.opening import read_checked
from schemas.display import readable, table
from schemas.errors import UsageError, counted
from schemas.storage.json_files import read_versioned

FORMAT_VERSION = 1
HEADS = {  # the table headers, by type of column
    "number": ("count", "missing", "mean", "std", "min", "25%", "median", "75%", "max", "distinct"),
    "string": ("count", "missing", "distinct", "length", "most frequent"),
}
_SHOWN = 3  # the most frequent values that a table shows
_CUT = 24  # the most characters of a value that a table shows


def read_statistics(data_dir: str) -> dict[str, Any]:
    """Returns the statistics of a dataset: the values of its `statistics.json`. docs/statistics.md describes the keys.

    Raises:
      UsageError: there is no dataset, or it was written without statistics.
      MillraceError: the statistics cannot be read.
    """
    path = read_checked(data_dir).path_of(data_dir, layout.STATISTICS_JSON)
    if path is None:
        raise UsageError(
            f"{data_dir}: has no statistics. It was written with --no_statistics; write it again to have them."
        )
    return read_versioned(path, FORMAT_VERSION, "statistics")


def chosen(statistics: dict[str, Any], *, split: str | None = None, features: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the statistics of only some splits and features.

    Args:
      statistics: the result of `read_statistics`.
      split: the name of a split; None selects all splits.
      features: names of features in the schema, or of columns of a vector; empty selects all features.

    Raises:
      UsageError: there is no such split or feature.
    """
    splits, all_of_them = statistics["splits"], statistics["features"]
    if split is not None and split not in splits:
        raise UsageError(f"--split {split}: this dataset has no such split; it has {', '.join(splits)}")
    split_names = [split] if split else list(splits)
    names = {name for item in all_of_them for name in (item["name"], item["feature"])}
    for name in features:
        if name not in names:
            feature_names = ", ".join(sorted({item["feature"] for item in all_of_them})[:20])
            raise UsageError(f"--feature {name}: this dataset has no such feature; it has {feature_names}")
    return statistics | {
        "splits": {name: splits[name] for name in split_names},
        "features": [
            item | {"splits": {name: item["splits"][name] for name in split_names}}
            for item in all_of_them
            if not features or item["name"] in features or item["feature"] in features
        ],
    }


def render(statistics: dict[str, Any]) -> str:
    """Returns the statistics as a table of numbers and a table of strings, with a line for each feature and split."""
    return "\n".join(_lines(statistics))


def _lines(statistics: dict[str, Any]) -> Iterator[str]:
    splits = statistics["splits"]
    yield ", ".join(f"{name}: {counted(split['rows'], 'records')}" for name, split in splits.items())
    estimated = False
    for kind, heads in HEADS.items():
        rows = list(_rows(item for item in statistics["features"] if item["type"] == kind))
        if rows:
            yield ""
            yield from table((kind, "split", *heads), rows, left=2, last_left=kind == "string")
        marked = [cell for row in rows for head, cell in zip(heads, row[2:], strict=True) if head != "most frequent"]
        estimated |= any(cell.startswith("~") for cell in marked)
    if estimated:
        sketches = statistics["sketches"]
        # The standard error of an estimate from the k smallest hashes, relative to the number of distinct values.
        error = 1 / math.sqrt(sketches["distinct_values"] - 2)
        yield ""
        yield (
            f"~ estimated: the ranks of quantiles to {sketches['rank_error']:.1%} of all values with 99 % confidence, "
            f"distinct values with a standard error of {error:.1%} (docs/statistics.md)"
        )


def _rows(items: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for item in items:
        name = f"{item['name']} ({item['role']})" if item["role"] != "feature" else item["name"]
        for i, (split, described) in enumerate(item["splits"].items()):
            yield name if i == 0 else "", split, *cells(described, item["type"])


def cells(described: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Returns the cells of the table that describe a column in a split, in the order of `HEADS`.

    Estimates begin with ~.

    Args:
      described: the column's statistics in the split.
      kind: "number" or "string".
    """
    count, missing = described["count"], described["missing"]
    first = f"{count:,}", f"{missing:,} ({missing / (count + missing):.1%})" if missing else "0"
    if not count:
        return first + ("",) * (len(HEADS[kind]) - len(first))
    distinct = f"{'' if described['distinct_exact'] else '~'}{described['distinct']:,}"
    if kind == "string":
        length, least = described["length"], "" if not described["top_values_error"] else ">="
        sizes = f"{length['min']}" if length["min"] == length["max"] else f"{length['min']}-{length['max']}"
        top = (f"{_cut(v['value'])} {least}{v['count'] / count:.1%}" for v in described["top_values"][:_SHOWN])
        return *first, distinct, sizes, ", ".join(top)
    quantiles = dict(zip(described["quantiles"]["ranks"], described["quantiles"]["values"], strict=True))
    mark = "" if described["quantiles"]["exact"] else "~"
    low, middle, high = (f"{mark}{readable(quantiles[rank])}" for rank in (0.25, 0.5, 0.75))
    mean, std, least, most = (readable(described[name]) for name in ("mean", "std", "min", "max"))
    return *first, mean, std, least, low, middle, high, most, distinct


def _cut(value: str) -> str:
    shown = repr(value)[1:-1] if not value.isprintable() else value
    return (shown if len(shown) <= _CUT else f"{shown[: _CUT - 3]}...") or "''"
