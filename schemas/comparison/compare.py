"""Compares two samples, feature by feature, their values as the schema means them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import pyarrow as pa

from schemas.comparison import distances as making
from schemas.comparison.distances import Cells, divergence_noise, jensen_shannon, l_infinity, share_noise
from schemas.comparison.findings import Comparison, FeatureDrift, Range, Unseen
from schemas.profile.columns import Numbers, Strings
from schemas.profile.statistics import ColumnSample, Sample
from schemas.spec.features import Bool
from schemas.spec.forms import Limits
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema

_WORDS = {b"1": b"true", b"0": b"false"}


def as_meant(sample: Sample, schema: AnySchema) -> Sample:
    """The sample with the spellings of bools joined. Its strings must be those of the schema's records."""
    bools = {item.name: item for item in schema.items if isinstance(item, Bool)} if isinstance(schema, Schema) else {}
    columns = dict(sample.columns)
    for name, item in bools.items():
        column = columns.get(name)
        if column is not None and isinstance(column.values, Strings):
            columns[name] = dataclasses.replace(column, values=_joined(column.values, item))
    return dataclasses.replace(sample, columns=columns)


def _joined(strings: Strings, item: Bool) -> Strings:
    counts: collections.Counter[bytes] = collections.Counter()
    found = strings.counts
    for (value, count), read in zip(found.items(), item.read_values(pa.array(found, pa.binary())), strict=True):
        counts[_WORDS.get(read, value) if isinstance(read, bytes) else value] += count
    lengths = [len(value) for value in counts]
    frequent = dataclasses.replace(
        strings.frequent, values=pa.array(counts, pa.binary()), counts=np.array(list(counts.values()), np.int64)
    )
    return dataclasses.replace(
        strings, frequent=frequent, shortest=min(lengths, default=-1), longest=max(lengths, default=-1)
    )


EXAMPLES = 5  # unseen values that are named
CELLS = 8  # values that are told of a feature of strings

Thresholds = Callable[[str], Limits | None]  # by the feature's name in the schema


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
    columns = {
        name: (first.columns.get(name), second.columns.get(name))
        for name in (*first.columns, *(name for name in second.columns if name not in first.columns))
    }
    columns = {name: both for name, both in columns.items() if all(side is None or side.role != "key" for side in both)}
    found = [_compared(a, b, thresholds, names, tests=len(columns)) for a, b in columns.values()]
    return Comparison(
        first=names[0],
        second=names[1],
        rows=(first.rows, second.rows),
        features=tuple(sorted(found, key=lambda feature: feature.rank)),
        channels=tuple(_channels(first.channels, second.channels)),
    )


def _channels(
    first: Mapping[str, Mapping[str, Mapping[str, float]]], second: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> list[tuple[str, float, float]]:
    return [
        (f"{image}, {channel}", told["mean"], second[image][channel]["mean"])
        for image, channels in first.items()
        if image in second
        for channel, told in channels.items()
    ]


def _compared(
    a: ColumnSample | None, b: ColumnSample | None, thresholds: Thresholds, names: tuple[str, str], *, tests: int
) -> FeatureDrift:
    column = b or a
    assert column is not None  # noqa: S101 - one of them has it
    limits = thresholds(column.feature) or Limits.model_construct()
    numeric = isinstance(column.values, Numbers)
    measure: Literal["l_infinity", "jensen_shannon"] = "jensen_shannon" if numeric else "l_infinity"
    found = FeatureDrift(
        column.name, column.feature, column.kind, column.role, measure, warn=limits.warn, fail=limits.fail
    )
    if a is None or b is None:
        return dataclasses.replace(found, note=f"only in {names[0] if b is None else names[1]}")
    if isinstance(a.values, Numbers) != isinstance(b.values, Numbers):
        kinds = ["a number" if isinstance(side.values, Numbers) else "a string" for side in (a, b)]
        return dataclasses.replace(found, note=f"{kinds[0]} in {names[0]}, {kinds[1]} in {names[1]}")
    sides = a.values, b.values
    if column.kind == "image" and bool(a.values.count) != bool(b.values.count):
        return dataclasses.replace(found, note=f"not measured in {names[0] if b.values.count else names[1]}")
    return _distances(_missing(found, *sides, tests=tests), *sides, tests=tests)


def _missing(found: FeatureDrift, a: Numbers | Strings, b: Numbers | Strings, *, tests: int) -> FeatureDrift:
    rows = a.count + a.missing, b.count + b.missing
    if not all(rows):
        return dataclasses.replace(found, note="a side has no records")
    pooled = np.array([(a.missing + b.missing) / sum(rows)])
    noise = share_noise(pooled, rows, tests=tests)
    return dataclasses.replace(found, missing=(a.missing / rows[0], b.missing / rows[1]), missing_noise=noise)


def _distances(found: FeatureDrift, a: Numbers | Strings, b: Numbers | Strings, *, tests: int) -> FeatureDrift:
    if not (a.count and b.count):
        return found
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        cells = making.of_numbers(a, b)
        variance = 2 * (a.rank_deviation**2 + b.rank_deviation**2)  # a share is the difference of two ranks
        middle = (cells.shares[0] + cells.shares[1]) / 2
        noise = divergence_noise(middle, cells.counts, tests=tests, rank_variance=variance)
        unseen = None
        span: Range | None = _range_of_numbers(a, b)
    else:
        assert isinstance(a, Strings)  # noqa: S101 - both are of one type
        assert isinstance(b, Strings)  # noqa: S101
        cells = making.of_strings(a, b)
        uncertain = max(a.frequent.error / a.count, b.frequent.error / b.count)
        known = cells.pooled[: cells.named]
        noise = min(1.0, share_noise(known, cells.counts, tests=tests * max(1, cells.named)) + uncertain)
        unseen, span = _unseen(a, b), None
        if found.kind != "one_hot":  # whose values are columns
            span = Range((a.shortest, a.longest), (b.shortest, b.longest), None)
    p, q = (share[: cells.named] for share in cells.shares)
    return dataclasses.replace(
        found,
        l_infinity=l_infinity(p, q),
        jensen_shannon=jensen_shannon(*cells.shares),
        noise=noise,
        cells=_cells(cells, p, q, in_order=isinstance(a, Numbers)),
        unseen=unseen,
        range=span,
    )


def _cells(cells: Cells, p: np.ndarray, q: np.ndarray, *, in_order: bool) -> tuple[tuple[str, float, float], ...]:
    places = range(len(p)) if in_order else np.argsort(-np.abs(p - q), kind="stable")[:CELLS].tolist()
    return tuple((cells.labels[place], float(p[place]), float(q[place])) for place in places)


def _range_of_numbers(a: Numbers, b: Numbers) -> Range:
    under, over = b.up_to(np.array([making.below(np.float32(a.low)), a.high], np.float32)) * [1, -1] + [0, 1]
    ends = (b.low < a.low, float(under)), (b.high > a.high, float(over))
    outside = sum(max(1, round(share * b.count)) for beyond, share in ends if beyond)  # at least the one at the end
    return Range((a.low, a.high), (b.low, b.high), outside)


def _unseen(a: Strings, b: Strings) -> Unseen | None:
    known = a.counts
    new = sorted(
        ((value, count) for value, count in b.counts.items() if value not in known),
        key=lambda item: (-item[1], item[0]),
    )
    if not new:
        return None
    examples = tuple((making.text(value), count) for value, count in new[:EXAMPLES])
    rows = sum(count for _, count in new)
    return Unseen(examples, len(new), rows, at_most=a.frequent.error, at_least=bool(b.frequent.error))
