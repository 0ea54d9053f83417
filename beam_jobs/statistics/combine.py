"""Merges the statistics of all bundles inside the pipeline: on every worker, and then those of the workers."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam

from beam_jobs.statistics.collect import merged
from beam_jobs.statistics.state import Statistics

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
