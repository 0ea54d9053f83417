"""Merges the statistics of all bundles inside the pipeline: on every worker, and then those of the workers."""

from __future__ import annotations

import json
from collections.abc import Iterable

import apache_beam as beam

from schemas.profile.leakage import Known, Watched
from schemas.profile.leakage_findings import find
from schemas.profile.statistics import Statistics, merged

STATISTICS = "statistics"  # a side output of steps that see accepted records


Accumulator = bytes | Statistics | None  # None before there are any; bytes until there are more


class MergeStatistics(beam.CombineFn):
    """Statistics of bundles, as bytes -> statistics of all, as bytes."""

    def create_accumulator(self) -> Accumulator:
        return None

    def add_input(self, accumulator: Accumulator, element: bytes) -> Accumulator:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Accumulator]) -> Accumulator:
        parts = [part for part in accumulators if part is not None]
        return parts[0] if len(parts) == 1 else merged(map(_opened, parts))

    def extract_output(self, accumulator: Accumulator) -> bytes:
        if isinstance(accumulator, Statistics):
            return accumulator.to_bytes()
        return accumulator or b""


def _opened(part: bytes | Statistics) -> Statistics:
    return Statistics.from_bytes(part) if isinstance(part, bytes) else part


LEAKAGE = "leakage"  # a side output of steps that see accepted records

LeakAccumulator = bytes | Known | None  # None before there is any; bytes until there are more


class FindLeaks(beam.CombineFn):
    """What bundles know, as bytes -> what is found, as JSON. `watched`: of rows; None for images."""

    def __init__(self, watched: Watched | None) -> None:
        self.watched = watched

    def create_accumulator(self) -> LeakAccumulator:
        return None

    def add_input(self, accumulator: LeakAccumulator, element: bytes) -> LeakAccumulator:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[LeakAccumulator]) -> LeakAccumulator:
        parts = [part for part in accumulators if part is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        total = _opened_leaks(parts[0])
        for part in parts[1:]:
            total.merge(_opened_leaks(part))
        return total

    def extract_output(self, accumulator: LeakAccumulator) -> bytes:
        if accumulator is None:
            return b"{}"
        return json.dumps(find(_opened_leaks(accumulator), self.watched), allow_nan=False).encode()


def _opened_leaks(part: bytes | Known) -> Known:
    return Known.from_bytes(part) if isinstance(part, bytes) else part


def find_leaks(watched: Watched | None) -> beam.PTransform:
    """What bundles know, as bytes -> what is found, as JSON; nothing, if there was no record."""
    return beam.CombineGlobally(FindLeaks(watched)).without_defaults()
