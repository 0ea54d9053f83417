"""Merges the profiles of bundles in a pipeline, and computes the statistics and the findings of leakage from them.

A profile summarizes accepted records: Statistics, or a LeakageProfile. Each bundle makes its own profiles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from beam_jobs.core.source import PipelinePlan
from beam_jobs.core.workers import PickleCoder
from schemas.profile.leakage import LeakageProfile
from schemas.profile.leakage_findings import find
from schemas.profile.profiles import Profiles
from schemas.profile.statistics import Statistics

STATISTICS, LEAKAGE = "statistics", "leakage"  # the side outputs with the profiles of bundles

Profile = Statistics | LeakageProfile


class ProfileCoder(PickleCoder):
    """Encodes profiles by pickling, and estimates the size of a LeakageProfile without pickling it.

    Beam asks for the size of elements. The hashes in a LeakageProfile may be tens of MB, so pickling takes long.
    """

    def estimate_size(self, value: Profile | None) -> int:
        if not isinstance(value, LeakageProfile):
            return len(self.encode(value))
        return sum(hashes.table.nbytes for hashes in value.hashes.values())

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> ProfileCoder:
        return cls()


for kind in (Statistics, LeakageProfile):
    beam.coders.registry.register_coder(kind, ProfileCoder)


class MergeProfiles(beam.CombineFn):
    """Merges profiles of bundles, all of one class, to the profile of all records; None if there are no profiles."""

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return ProfileCoder()

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


def tagged(profiles: Profiles | None) -> Iterator[tuple[str, Profile]]:
    """Yields the profiles of a bundle of rows, each after the name of its side output. Yields nothing without rows."""
    if profiles is not None and profiles.rows:
        if profiles.statistics is not None:
            yield STATISTICS, profiles.statistics
        if profiles.leakage is not None:
            yield LEAKAGE, profiles.leakage


def findings_of(profiles: Profiles | None) -> Iterator[tuple[str, bytes]]:
    """Yields the name of each side output, and the bytes of the statistics or findings that belong there.

    Does the work of `merged` outside a pipeline. `profiles`: the profiles of all rows, already merged.
    """
    for tag, profile in tagged(profiles):
        yield tag, profile.to_bytes() if isinstance(profile, Statistics) else judged(profile)


def merged(plan: PipelinePlan, statistics: beam.PCollection, leakage: beam.PCollection) -> dict[str, beam.PCollection]:
    """Adds the steps that merge the profiles of bundles, and make the bytes for the result file.

    The findings of leakage are computed inside the pipeline, because they are small, unlike the profile.

    Args:
      plan: says whether statistics and leakage are wanted.
      statistics: the Statistics of bundles.
      leakage: the LeakageProfiles of bundles.

    Returns:
      PCollections by the argument of `write_result` that takes them. Each has one element, or none without records.
    """
    totals = {}
    if plan.statistics:
        totals["statistics"] = _total(statistics, Statistics) | beam.Map(Statistics.to_bytes)
    if plan.leakage:
        totals["leakage"] = _total(leakage, LeakageProfile) | "FindLeaks" >> beam.Map(judged)
    return totals


def _total(profiles: beam.PCollection, kind: type[Profile]) -> beam.PCollection:
    """Merges the profiles of bundles to the profile of all records. The result is empty if there are no profiles."""
    profiles.element_type = kind  # Beam chooses the coder by this type
    combine = beam.CombineGlobally(MergeProfiles()).without_defaults()
    return profiles | f"Merge{kind.__name__}" >> combine.with_input_types(kind).with_output_types(kind)


def judged(profile: LeakageProfile) -> bytes:
    """Searches the profile of all records for leakage, and returns the findings as JSON."""
    return json.dumps(find(profile), allow_nan=False).encode()
