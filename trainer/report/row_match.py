"""Which rows, transformed, are the stored records that are looked for: everything equal, floats to within rounding.

The same transform on another machine, or in another batch, may round the last digits of a float otherwise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

TOLERANCE = 2e-6  # of a float, relative and absolute
SHOWN = 5  # places of one record
_KEPT = 32  # candidates of one record
_AT_ONCE = 1 << 20  # values that are compared at once

Values = Mapping[str, Any]  # by feature: an array `[rows, ...]`, or one array for each row where lengths vary


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a raw row is. `offset`: of its first byte; `row`: its index among the file's records; both from 0."""

    source: str
    offset: int
    row: int


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A raw row that gives a record. `distance`: the largest difference of a float; `raw`: its raw values."""

    distance: float
    place: Place
    raw: str


class Nearest:
    """The raw rows that give one record."""

    def __init__(self) -> None:
        self._best, self._ties = math.inf, 0
        self._kept: list[Candidate] = []

    def add(self, rows: np.ndarray, distances: np.ndarray, candidate: Callable[[int, float], Candidate]) -> None:
        """Takes in rows of a batch, int64 `[n]`, and their distances, float64 `[n]`; `candidate` gives one in full."""
        nearest = float(distances.min())
        if nearest < self._best:
            self._best, self._ties = nearest, 0
        self._ties += int((distances == self._best).sum())
        order = np.argsort(distances, kind="stable")[:_KEPT]
        farthest = self._kept[-1].distance if len(self._kept) == _KEPT else math.inf
        more = [candidate(int(rows[i]), float(distances[i])) for i in order if distances[i] < farthest]
        self._kept = sorted([*self._kept, *more], key=lambda c: c.distance)[:_KEPT]

    def places(self) -> tuple[list[Place], int]:
        """The first places of the rows that cannot be told apart, and how many such rows there are."""
        # A row with the raw values of the nearest one is no farther from the record, whatever rounding says.
        alike = [c.place for c in self._kept if c.distance == self._best or c.raw == self._kept[0].raw]
        return alike[:SHOWN], max(len(alike), self._ties)


def equal_pairs(wanted: Values, found: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of a wanted record and a row that agree in every feature of `wanted`.

    Returns:
      The records, the rows, int64 `[pairs]` each, and the largest difference of a float, float64 `[pairs]`.
    """
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    if not wanted or wanted.keys() - found.keys():
        return none
    records, rows = len(next(iter(wanted.values()))), len(found[next(iter(wanted))])
    wants, places = (array.ravel() for array in np.indices((records, rows)))
    dense = [name for name, values in wanted.items() if isinstance(values, np.ndarray)]
    if any(
        not isinstance(found[name], np.ndarray) or found[name].shape[1:] != wanted[name].shape[1:] for name in dense
    ):
        return none
    flat = {name: (wanted[name].reshape(records, -1), found[name].reshape(rows, -1)) for name in dense}
    for one, other in flat.values():  # by the first values alone few pairs are left
        agree, _ = _compared(one[wants, :1], other[places, :1])
        wants, places = wants[agree], places[agree]
    distances = np.zeros(len(wants))
    for one, other in flat.values():
        size = max(1, _AT_ONCE // max(1, one.shape[1]))
        parts = [
            _compared(one[wants[at : at + size]], other[places[at : at + size]]) for at in range(0, len(wants), size)
        ]
        if parts:
            agree, apart = (np.concatenate(part) for part in zip(*parts, strict=True))
            wants, places, distances = wants[agree], places[agree], np.maximum(distances, apart)[agree]
    for name in wanted.keys() - set(dense):
        agree = _agree_in_length_and_values(wanted[name], found[name], wants, places)
        wants, places, distances = wants[agree], places[agree], distances[agree]
    return wants, places, distances


def _agree_in_length_and_values(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], wants: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Which pairs agree in a feature whose number of values varies, bool `[pairs]`; all pairs at once."""
    lengths, others = (
        np.array([len(row) for row in rows], np.int64)[at] for rows, at in ((one, wants), (other, places))
    )
    agree: np.ndarray = lengths == others
    values, starts = _joined(one)
    other_values, other_starts = _joined(other)
    for k in range(int(lengths[agree].max(initial=0))):
        left = np.flatnonzero(agree & (lengths > k))
        if not len(left):
            break
        first, second = values[starts[wants[left]] + k], other_values[other_starts[places[left]] + k]
        agree[left], _ = _compared(first[:, np.newaxis], second[:, np.newaxis])
    return agree


def _joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The values of all rows, and where each row's begin."""
    return np.concatenate(rows), np.cumsum([0, *(len(row) for row in rows[:-1])])


def _compared(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether rows `[n, k]` agree, and the largest difference of their floats; both `[n]`."""
    same = one == other
    if one.dtype.kind != "f":
        return same.all(axis=1), np.zeros(len(one))
    same |= np.isnan(one) & np.isnan(other)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one.astype(np.float64) - other))
        close = same | (np.isfinite(apart) & (apart <= TOLERANCE * (1 + np.abs(one))))
    return close.all(axis=1), apart.max(axis=1, initial=0.0)
