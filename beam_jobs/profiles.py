"""Merges the profiles of bundles in a pipeline, and makes a job's statistics and its findings of leakage of them."""

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

STATISTICS, LEAKAGE = "statistics", "leakage"  # side outputs of steps that see accepted records: profiles of bundles

Profile = Statistics | LeakageProfile


class ProfileCoder(PickleCoder):
    """Tells the size of hashes of records, which may be tens of MB, without pickling them; also that of None."""

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
    """Profiles of bundles, all of one kind -> the profile of all records; None if there is none."""

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
    """Yields the profiles of rows, each with its side output; nothing if there was no row."""
    if profiles is not None and profiles.rows:
        if profiles.statistics is not None:
            yield STATISTICS, profiles.statistics
        if profiles.leakage is not None:
            yield LEAKAGE, profiles.leakage


def findings_of(profiles: Profiles | None) -> Iterator[tuple[str, bytes]]:
    """Yields the bytes that `merged` makes, from the profiles of all rows, each with its side output."""
    for tag, profile in tagged(profiles):
        yield tag, profile.to_bytes() if isinstance(profile, Statistics) else judged(profile)


def merged(plan: PipelinePlan, statistics: beam.PCollection, leakage: beam.PCollection) -> dict[str, beam.PCollection]:
    """Merges the profiles of bundles into what `write_result` takes, by its argument; nothing if there was no record.

    Leakage is judged inside the pipeline: what leaves it is small.

    Args:
      plan: says which are collected.
      statistics: Statistics of bundles.
      leakage: LeakageProfiles of bundles.
    """
    totals = {}
    if plan.statistics:
        totals["statistics"] = _total(statistics, Statistics) | beam.Map(Statistics.to_bytes)
    if plan.leakage:
        totals["leakage"] = _total(leakage, LeakageProfile) | "FindLeaks" >> beam.Map(judged)
    return totals


def _total(profiles: beam.PCollection, kind: type[Profile]) -> beam.PCollection:
    """Profiles of bundles -> the profile of all records; nothing, if there is none."""
    profiles.element_type = kind  # by which Beam chooses the coder
    combine = beam.CombineGlobally(MergeProfiles()).without_defaults()
    return profiles | f"Merge{kind.__name__}" >> combine.with_input_types(kind).with_output_types(kind)


def judged(profile: LeakageProfile) -> bytes:
    """Judges the profile of all records, and returns the findings as JSON."""
    return json.dumps(find(profile), allow_nan=False).encode()
