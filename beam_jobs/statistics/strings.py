"""The statistics of a column of strings."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.statistics.frequent import Frequent, summed
from beam_jobs.statistics.sketches import Distinct, Sizes

CUT = 100  # bytes: longer strings are cut before they are counted as frequent values


@dataclasses.dataclass
class Strings:
    """What is known of the values of one column in one split.

    Attributes:
      count: the values that are not missing.
      missing: the others.
      characters: the sum of their lengths, in characters.
      shortest, longest: in characters; -1 while there is none.
    """

    distinct: Distinct
    frequent: Frequent
    count: int = 0
    missing: int = 0
    characters: int = 0
    shortest: int = -1
    longest: int = -1

    @staticmethod
    def empty(sizes: Sizes) -> Strings:
        """Nothing seen yet."""
        return Strings(Distinct(sizes.distinct), Frequent.empty(sizes.frequent, pa.binary()))

    def add(self, values: pa.BinaryArray, counts: np.ndarray, missing: int) -> None:
        """Adds values.

        Args:
          values: distinct ones, binary `[n]`.
          counts: int64 `[n]`: how often each of them occurred, once or more often.
          missing: how many are missing beside them.
        """
        self.missing += missing
        if not len(values):
            return
        lengths = np.asarray(_lengths(values), np.int64)
        self._join(int(counts.sum()), int((lengths * counts).sum()), int(lengths.min()), int(lengths.max()))
        self.distinct.add(values)
        if _longest(values) > CUT:
            values, counts = summed(pc.binary_slice(values, 0, CUT), counts)  # a character may be cut apart
        self.frequent.add(values, counts)

    def merge(self, other: Strings) -> None:
        """Adds what the other one has seen."""
        self.missing += other.missing
        if other.count:
            self._join(other.count, other.characters, other.shortest, other.longest)
        self.distinct.merge(other.distinct)
        self.frequent.merge(other.frequent)

    def _join(self, count: int, characters: int, shortest: int, longest: int) -> None:
        self.shortest = shortest if not self.count else min(self.shortest, shortest)
        self.longest = max(self.longest, longest)
        self.count += count
        self.characters += characters

    def describe(self, top: int) -> dict[str, Any]:
        """The statistics as JSON values. `top`: how many frequent values are listed."""
        told: dict[str, Any] = {"count": self.count, "missing": self.missing}
        if not self.count:
            return told
        exact = self.frequent.exact and self.longest < CUT // 4  # no value was cut: a character has 4 bytes at most
        return told | {
            "distinct": len(self.frequent.values) if exact else self.distinct.count,
            "distinct_exact": exact or self.distinct.exact,
            "length": {"mean": self.characters / self.count, "min": self.shortest, "max": self.longest},
            "top_values": [
                {"value": value.decode(errors="replace"), "count": count} for value, count in self.frequent.top(top)
            ],
            "top_values_error": self.frequent.error,
        }


def _lengths(values: pa.BinaryArray) -> pa.Array:
    """In characters; in bytes where a value is not UTF-8."""
    try:
        return pc.utf8_length(values.cast(pa.string()))
    except pa.ArrowInvalid:
        return pc.binary_length(values)


def _longest(values: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(values)).as_py())
