"""Merges the statistics of all bundles inside the pipeline: on every worker, and then those of the workers."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam

from beam_jobs.statistics.collect import merged
from beam_jobs.statistics.state import Statistics

STATISTICS = "statistics"  # a side output of steps that see accepted records


class MergeStatistics(beam.CombineFn):
    """Statistics of bundles -> statistics of all. An accumulator is None before it has any."""

    def create_accumulator(self) -> Statistics | None:
        return None

    def add_input(self, accumulator: Statistics | None, element: Statistics) -> Statistics | None:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Statistics | None]) -> Statistics | None:
        return merged(part for part in accumulators if part is not None)

    def extract_output(self, accumulator: Statistics | None) -> Statistics | None:
        return accumulator
