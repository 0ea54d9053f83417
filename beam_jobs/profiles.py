"""Profiles of bundles in a pipeline: merged on every worker, and then those of the workers."""

from __future__ import annotations

import json
from collections.abc import Iterable

import apache_beam as beam

from schemas.profile.leakage import LeakageProfile, WatchedRows
from schemas.profile.leakage_findings import find
from schemas.profile.statistics import Statistics

STATISTICS, LEAKAGE = "statistics", "leakage"  # side outputs of steps that see accepted records

Profile = Statistics | LeakageProfile


class MergeProfiles(beam.CombineFn):
    """Profiles of bundles, all of one kind -> the profile of all records; None if there is none."""

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


@beam.ptransform_fn
def MergeStatistics(profiles: beam.PCollection) -> beam.PCollection:  # noqa: N802 - a transform
    """Statistics of bundles -> those of all records as bytes; nothing, if there was no record."""
    return profiles | beam.CombineGlobally(MergeProfiles()).without_defaults() | beam.Map(Statistics.to_bytes)


@beam.ptransform_fn
def FindLeakage(profiles: beam.PCollection, watched: WatchedRows | None) -> beam.PCollection:  # noqa: N802 - a transform
    """Profiles of bundles -> what is found, as JSON; nothing, if there was no record. `watched`: None for images.

    It is judged inside the pipeline: what leaves it is small.
    """
    return profiles | beam.CombineGlobally(MergeProfiles()).without_defaults() | beam.Map(_judged, watched)


def _judged(profile: LeakageProfile, watched: WatchedRows | None) -> bytes:
    return json.dumps(find(profile, watched), allow_nan=False).encode()
