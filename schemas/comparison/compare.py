"""Compares two samples of records, feature by feature, by what their values mean in the schema."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.comparison.distances import (
    cells_of_numbers,
    cells_of_strings,
    divergence_noise,
    jensen_shannon,
    l_infinity,
    share_noise,
    text,
)
from schemas.comparison.findings import Comparison, FeatureDrift, Unseen, ValueRange
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError
from schemas.profile.statistics import Statistics
from schemas.profile.summary import Distribution, Summary, below
from schemas.spec.features import Bool
from schemas.spec.forms import Limits
from schemas.spec.images import TEXT, ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import HashSplit, Schema

EXAMPLES = 5  # unseen values that are named
CELLS = 8  # values of a feature of strings that are named
_WORDS = {b"1": b"true", b"0": b"false"}

Thresholds = Callable[[str], Limits | None]  # by the feature's name in the schema


@dataclasses.dataclass(frozen=True)
class ColumnSample:
    """What is described. `name`: a column of a vector, or the feature; `feature`: its name in the schema."""

    name: str
    feature: str
    kind: str
    role: str
    values: Summary


@dataclasses.dataclass(frozen=True)
class Sample:
    """The records of one split, or of some files.

    Attributes:
      rows: how many there are.
      columns: what is known of them, by name, in the schema's order.
    """

    rows: int
    columns: Mapping[str, ColumnSample]


def samples_of(statistics: Statistics) -> dict[str, Sample]:
    """Returns the records of each split."""
    summaries = statistics.summaries
    return {
        split: Sample(
            rows,
            {
                name: ColumnSample(name, column.name, column.kind, column.role, summaries[split, name])
                for column in statistics.columns
                for name in column.names
            },
        )
        for split, rows in statistics.rows.items()
    }


def stored_samples(data_dir: str, manifest: Manifest) -> dict[str, Sample]:
    """Reads the records of each split from the statistics of a dataset's run.

    Raises:
      UsageError: it was written without statistics.
      MillraceError: they cannot be read.
    """
    path = manifest.path_of(data_dir, layout.STATISTICS_SKETCHES)
    if path is None:
        raise UsageError(
            f"{data_dir}: has no statistics to compare. It was written with --no_statistics; write it again to have "
            "them."
        )
    return samples_of(Statistics.from_bytes(storage.read_bytes(path), source=path))


def as_meant(sample: Sample, schema: AnySchema) -> Sample:
    """Returns the sample with the spellings of bools joined; its strings are those of the schema's records."""
    bools = [item for item in schema.items if isinstance(item, Bool)] if isinstance(schema, Schema) else []
    columns = dict(sample.columns)
    for item in bools:
        if (column := columns.get(item.name)) is not None and not column.values.numeric:
            columns[item.name] = dataclasses.replace(column, values=_joined(column.values, item))
    return dataclasses.replace(sample, columns=columns)


def _joined(strings: Summary, item: Bool) -> Summary:
    """The values of a bool, spelled as true or false."""
    counts: collections.Counter[bytes] = collections.Counter()
    spellings = strings.counts()
    for (value, count), read in zip(spellings.items(), item.read_values(pa.array(spellings, pa.binary())), strict=True):
        counts[_WORDS.get(read, value) if isinstance(read, bytes) else value] += count
    joined = copy.copy(strings)
    values, sums = pa.array(counts, pa.binary()), np.array(list(counts.values()), np.int64)
    joined.frequent = dataclasses.replace(strings.frequent, values=values, counts=sums)
    low, high = min(map(len, counts), default=math.inf), max(map(len, counts), default=-math.inf)
    joined.moments = dataclasses.replace(strings.moments, low=low, high=high)
    return joined


def of_groups(comparison: Comparison, schema: AnySchema) -> Comparison:
    """Adds a note to a comparison of two splits that hold whole groups of rows; none of its features then fails."""
    features = comparison.features
    if isinstance(schema, ImageSchema):
        if not schema.pairs:
            return comparison
        groups = "class"
        features = tuple(feature for feature in features if feature.feature != TEXT)  # no class is in two splits
    elif isinstance(schema.split, HashSplit) and schema.split.by != "row":
        groups = schema.split.by if isinstance(schema.split.by, str) else " and ".join(schema.split.by)
    else:
        return comparison
    note = (
        f"Each split holds whole groups of {schema.records}, those with the same {groups}. With few groups, splits "
        f"differ more than chance explains for single {schema.records}, and this is no sign of drift"
    )
    limited = (
        feature
        if feature.fail is None
        else dataclasses.replace(feature, warn=feature.fail if feature.warn is None else feature.warn, fail=None)
        for feature in features
    )
    features = tuple(sorted(limited, key=lambda feature: feature.rank))
    return dataclasses.replace(comparison, features=features, note=note)


def compare(
    first: Sample,
    second: Sample,
    thresholds: Thresholds = lambda feature: None,
    *,
    names: tuple[str, str] = ("first", "second"),
) -> Comparison:
    """Compares two samples of records.

    Keys are left out: a key names an example, so new ones are no drift.

    Args:
      first: what is compared with, such as the train split.
      second: what may have drifted.
      thresholds: of each feature; see `schemas.spec.table.Schema.drift_limits`.
      names: what the samples are called.

    Returns:
      The features of both, the most drifted first.
    """
    pairs = [(first.columns.get(name), second.columns.get(name)) for name in {**first.columns, **second.columns}]
    pairs = [pair for pair in pairs if all(side is None or side.role != "key" for side in pair)]
    thresholds = functools.cache(thresholds)
    features = [_compared(a, b, thresholds, names, tests=len(pairs)) for a, b in pairs]
    return Comparison(
        first=names[0],
        second=names[1],
        rows=(first.rows, second.rows),
        features=tuple(sorted(features, key=lambda feature: feature.rank)),
    )


def _compared(
    a: ColumnSample | None, b: ColumnSample | None, thresholds: Thresholds, names: tuple[str, str], *, tests: int
) -> FeatureDrift:
    """How a column differs that one of the samples has, or both. `tests`: how many columns are compared."""
    column = b or a
    if column is None:
        raise ValueError("a column of neither sample")
    limits = thresholds(column.feature)
    drift = FeatureDrift(
        column.name,
        column.feature,
        column.kind,
        column.role,
        "jensen_shannon" if column.values.numeric else "l_infinity",
        warn=None if limits is None else limits.warn,
        fail=None if limits is None else limits.fail,
    )
    if a is None or b is None:
        return dataclasses.replace(drift, note=f"only in {names[0] if b is None else names[1]}")
    left, right = a.values, b.values
    if left.numeric != right.numeric:
        kinds = ["a number" if side.numeric else "a string" for side in (left, right)]
        return dataclasses.replace(drift, note=f"{kinds[0]} in {names[0]}, {kinds[1]} in {names[1]}")
    if column.kind == "image" and bool(left.count) != bool(right.count):
        return dataclasses.replace(drift, note=f"not measured in {names[0] if right.count else names[1]}")
    differences = _missing(left, right, tests=tests)
    if left.count and right.count:
        differences |= _of_numbers(left, right, tests=tests) if left.numeric else _of_strings(left, right, tests=tests)
        if column.kind == "one_hot":  # its values are columns: their lengths say nothing
            differences["range"] = None
    return dataclasses.replace(drift, **differences)


def _missing(a: Summary, b: Summary, *, tests: int) -> dict[str, Any]:
    rows = a.count + a.missing, b.count + b.missing
    if not all(rows):
        return {"note": "a side has no records"}
    if not a.missing and not b.missing:
        return {}
    noise = share_noise(np.array([(a.missing + b.missing) / sum(rows)]), rows, tests=tests)
    return {"missing": (a.missing / rows[0], b.missing / rows[1]), "missing_noise": noise}


def _of_numbers(a: Summary, b: Summary, *, tests: int) -> dict[str, Any]:
    first, second = Distribution(a), Distribution(b)
    cells = cells_of_numbers(first, second)
    ends = np.array([first.low, first.high], np.float32)
    outside = 0
    if second.low < first.low:  # the end itself counts, which a sketch may have dropped
        outside += max(1, round(second.up_to(below(ends[:1])).item() * second.count))
    if second.high > first.high:
        outside += max(1, round((1 - second.up_to(ends[1:]).item()) * second.count))
    return {
        "distance": jensen_shannon(*cells.shares),
        "noise": divergence_noise(cells, first, second, tests=tests),
        "cells": tuple(zip(cells.labels, *(share.tolist() for share in cells.shares), strict=True)),
        "range": ValueRange((first.low, first.high), (second.low, second.high), outside),
    }


def _of_strings(a: Summary, b: Summary, *, tests: int) -> dict[str, Any]:
    cells = cells_of_strings(a, b)
    uncertain = max(a.frequent.error / a.count, b.frequent.error / b.count)
    p, q = cells.shares
    pooled = (p * a.count + q * b.count) / (a.count + b.count)
    noise = share_noise(pooled, (a.count, b.count), tests=tests * max(1, len(cells.labels)))
    most = np.argsort(-np.abs(p - q), kind="stable")[:CELLS].tolist()
    return {
        "distance": l_infinity(p, q),
        "noise": min(1.0, noise + uncertain),
        "cells": tuple((cells.labels[place], float(p[place]), float(q[place])) for place in most),
        "unseen": _unseen(a, b),
        "range": ValueRange(_lengths(a), _lengths(b), None),
    }


def _lengths(strings: Summary) -> tuple[int, int]:
    return int(strings.moments.low), int(strings.moments.high)


def _unseen(a: Summary, b: Summary) -> Unseen | None:
    old = a.counts()
    new = [pair for pair in b.frequent.top(len(b.frequent.counts)) if pair[0] not in old]
    if not new:
        return None
    examples = tuple((text(value), count) for value, count in new[:EXAMPLES])
    rows = sum(count for _, count in new)
    return Unseen(examples, len(new), rows, at_most=a.frequent.error, at_least=bool(b.frequent.error))
