"""The statistics of a dataset, as its job wrote them: read, chosen from, and shown as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from schemas.dataset import layout
from schemas.dataset.opening import read_checked
from schemas.display import readable, table
from schemas.errors import UsageError, counted
from schemas.storage.json_files import read_versioned

FORMAT_VERSION = 1
_NUMBERS = ("number", "split", "count", "missing", "mean", "std", "min", "25%", "median", "75%", "max", "distinct")
_STRINGS = ("string", "split", "count", "missing", "distinct", "length", "most frequent")
_SHOWN = 3  # frequent values in a table
_CUT = 24  # characters of a value that are shown


def read_statistics(data_dir: str) -> dict[str, Any]:
    """The statistics of a dataset: the values of its run's `statistics.json`. docs/statistics.md describes the keys.

    Raises:
      UsageError: there is no dataset, or it was written without statistics.
      MillraceError: they cannot be read.
    """
    path = read_checked(data_dir).path_of(data_dir, layout.STATISTICS_JSON)
    if path is None:
        raise UsageError(
            f"{data_dir}: has no statistics. It was written with --no_statistics; write it again to have them."
        )
    return read_versioned(path, FORMAT_VERSION, "statistics")


def chosen(statistics: dict[str, Any], *, split: str | None = None, features: Sequence[str] = ()) -> dict[str, Any]:
    """The statistics of one split, and of some features.

    Args:
      statistics: as `read_statistics` returns them.
      split: its name; None: all of them.
      features: their names in the schema, or those of columns of a vector; none: all of them.

    Raises:
      UsageError: there is no such split, or no such feature.
    """
    splits, all_of_them = statistics["splits"], statistics["features"]
    if split is not None and split not in splits:
        raise UsageError(f"--split {split}: is no split of this dataset; it has {', '.join(splits)}")
    wanted = [split] if split else list(splits)
    names = {name for item in all_of_them for name in (item["name"], item["feature"])}
    for name in features:
        if name not in names:
            some = ", ".join(sorted({item["feature"] for item in all_of_them})[:20])
            raise UsageError(f"--feature {name}: is no feature of this dataset; there are {some}")
    return statistics | {
        "splits": {name: splits[name] for name in wanted},
        "features": [
            item | {"splits": {name: item["splits"][name] for name in wanted}}
            for item in all_of_them
            if not features or item["name"] in features or item["feature"] in features
        ],
    }


def render(statistics: dict[str, Any]) -> str:
    """A table of the numbers and one of the strings, with a line for each feature and split."""
    return "\n".join(_lines(statistics))


def _lines(statistics: dict[str, Any]) -> Iterator[str]:
    splits = statistics["splits"]
    yield ", ".join(f"{name}: {counted(split['rows'], 'records')}" for name, split in splits.items())
    for name, split in splits.items():
        for image, channels in split.get("channels", {}).items():
            told = ", ".join(f"{c} {found['mean']:.1f} (std {found['std']:.1f})" for c, found in channels.items())
            if told:
                yield f"{name}, pixels of {image}: {told}"
    numbers = [item for item in statistics["features"] if item["type"] == "number"]
    strings = [item for item in statistics["features"] if item["type"] == "string"]
    if numbers:
        yield ""
        yield from table(_NUMBERS, _rows(numbers, _number_cells), left=2)
    if strings:
        yield ""
        yield from table(_STRINGS, _rows(strings, _string_cells), left=2, last_left=True)
    if any("~" in cell for item in statistics["features"] for s in item["splits"].values() for cell in _marks(item, s)):
        sketches = statistics["sketches"]
        error = 1 / math.sqrt(sketches["distinct_values"] - 2)
        yield ""
        yield (
            f"~ estimated: the ranks of quantiles to {sketches['rank_error']:.1%} of all values with 99 % confidence, "
            f"distinct values with a standard error of {error:.1%} (docs/statistics.md)"
        )


def _rows(items: Iterable[dict[str, Any]], cells: Any) -> Iterator[tuple[str, ...]]:
    for item in items:
        for i, (split, found) in enumerate(item["splits"].items()):
            name = f"{item['name']} ({item['role']})" if item["role"] != "feature" else item["name"]
            yield (name if i == 0 else "", split, f"{found['count']:,}", _missing(found), *cells(found))


def _missing(found: dict[str, Any]) -> str:
    total = found["count"] + found["missing"]
    return f"{found['missing']:,} ({found['missing'] / total:.1%})" if found["missing"] else "0"


def _number_cells(found: dict[str, Any]) -> tuple[str, ...]:
    if not found["count"]:
        return ("",) * 8
    quantiles = dict(zip(found["quantiles"]["ranks"], found["quantiles"]["values"], strict=True))
    mark = "" if found["quantiles"]["exact"] else "~"
    low, middle, high = (f"{mark}{readable(quantiles[rank])}" for rank in (0.25, 0.5, 0.75))
    mean, std, least, most = (readable(found[name]) for name in ("mean", "std", "min", "max"))
    return mean, std, least, low, middle, high, most, _distinct(found)


def _string_cells(found: dict[str, Any]) -> tuple[str, ...]:
    if not found["count"]:
        return ("",) * 3
    length = found["length"]
    sizes = f"{length['min']}" if length["min"] == length["max"] else f"{length['min']}-{length['max']}"
    at_least = "" if not found["top_values_error"] else ">="
    top = (
        f"{_cut(value['value'])} {at_least}{value['count'] / found['count']:.1%}"
        for value in found["top_values"][:_SHOWN]
    )
    return _distinct(found), sizes, ", ".join(top)


def _distinct(found: dict[str, Any]) -> str:
    return f"{'' if found['distinct_exact'] else '~'}{found['distinct']:,}"


def _marks(item: dict[str, Any], found: dict[str, Any]) -> tuple[str, ...]:
    return () if not found["count"] else (_number_cells if item["type"] == "number" else _string_cells)(found)


def _cut(value: str) -> str:
    shown = repr(value)[1:-1] if not value.isprintable() else value
    return (shown if len(shown) <= _CUT else f"{shown[: _CUT - 3]}...") or "''"
