"""The parts that the raw values of a feature divide rows into: its values, or ranges of numbers by their quantiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from schemas.spec.features import OneHot
from schemas.spec.table import Schema

MOST_VALUES = 50  # of a feature: the most frequent ones; all others are one part
RANGES = 5  # that numbers are cut into


@dataclasses.dataclass(frozen=True)
class Slice:
    """Some of the rows: the feature, what its values there are called, and bool `[rows]`."""

    feature: str
    value: str
    rows: np.ndarray


def slices_of(schema: Schema, name: str, values: np.ndarray) -> Iterator[Slice]:
    """The parts of rows with these raw values of a feature, float32 or `bytes`, `[rows]` or `[rows, width]`."""
    feature = next(f for f in schema.inputs if f.name == name)
    if isinstance(feature, OneHot):
        place = values.argmax(axis=1)
        for column in np.unique(place):
            yield Slice(name, str(feature.refs[column]), place == column)
    elif values.dtype == object:
        yield from _values(name, values)
    elif values.ndim == 1:
        yield from _ranges(name, values)
    else:
        for column in range(values.shape[1]):
            yield from _ranges(f"{name}[{feature.refs[column]}]", values[:, column])


def _values(name: str, values: np.ndarray) -> Iterator[Slice]:
    encoded = pa.array([value.strip() for value in values], pa.binary()).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(-np.bincount(codes, minlength=len(encoded.dictionary)), kind="stable")
    for code in order[:MOST_VALUES].tolist():
        yield Slice(name, encoded.dictionary[code].as_py().decode("utf-8", "replace") or "(missing)", codes == code)
    if len(order) > MOST_VALUES:
        yield Slice(name, "(all other values)", np.isin(codes, order[MOST_VALUES:]))


def _ranges(name: str, values: np.ndarray) -> Iterator[Slice]:
    missing = np.isnan(values)
    if missing.any():
        yield Slice(name, "(missing)", missing)
    if missing.all():
        return
    ends = np.unique(np.quantile(values[~missing], np.arange(1, RANGES) / RANGES))
    part = np.where(missing, -1, np.searchsorted(ends, values, "right"))
    for place in np.unique(part[part >= 0]).tolist():
        low = "" if place == 0 else f"from {ends[place - 1]:.4g}"
        high = "" if place == len(ends) else f"below {ends[place]:.4g}"
        yield Slice(name, f"{low} {high}".strip(), part == place)
