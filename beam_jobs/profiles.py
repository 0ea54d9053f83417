"""Profiles of bundles in a pipeline: merged on every worker, and then those of the workers."""

from __future__ import annotations

import json
from collections.abc import Iterable

import apache_beam as beam

from beam_jobs.core.source import Plan
from schemas.profile.leakage import LeakageProfile, WatchedRows
from schemas.profile.leakage_findings import find
from schemas.profile.statistics import Statistics

STATISTICS, LEAKAGE = "statistics", "leakage"  # side outputs of steps that see accepted records: profiles of bundles

Profile = Statistics | LeakageProfile


class MergeProfiles(beam.CombineFn):
    """Profiles of bundles, all of one kind -> the profile of all records; None if there is none."""

    @classmethod
    def of_all(cls) -> beam.PTransform:
        """Profiles -> the profile of all records; nothing, if there is none."""
        return beam.CombineGlobally(cls()).without_defaults()

    def create_accumulator(self) -> Profile | None:
        return None

    def add_input(self, accumulator: Profile | None, element: Profile) -> Profile | None:
        return self.merge_accumulators((accumulator, element))

    def merge_accumulators(self, accumulators: Iterable[Profile | None]) -> Profile | None:
        total: Profile | None = None
        for profile in accumulators:
            if total is None:
                total = profile
            elif profile is not None:
                total.merge(profile)  # type: ignore[arg-type]
        return total

    def extract_output(self, accumulator: Profile | None) -> Profile | None:
        return accumulator


def merged(
    plan: Plan, statistics: beam.PCollection, leakage: beam.PCollection | None, watched: WatchedRows | None = None
) -> dict[str, beam.PCollection]:
    """What a job that collects profiles finds by them, by argument of `write_result`; nothing, if there was no record.

    Leakage is judged inside the pipeline: what leaves it is small.

    Args:
      plan: says which are collected.
      statistics: Statistics of bundles.
      leakage: LeakageProfiles of bundles.
      watched: the columns whose leakage is looked for; None for images.
    """
    found = {}
    if plan.statistics:
        found["statistics"] = statistics | "MergeStatistics" >> MergeProfiles.of_all() | beam.Map(Statistics.to_bytes)
    if plan.leakage:
        found["leakage"] = leakage | "MergeLeakage" >> MergeProfiles.of_all() | "FindLeaks" >> beam.Map(judged, watched)
    return found


def judged(profile: LeakageProfile, watched: WatchedRows | None) -> bytes:
    """The leakage that is found, as JSON."""
    return json.dumps(find(profile, watched), allow_nan=False).encode()
