"""Merges what all bundles know inside the pipeline, and judges it there: what leaves the pipeline is small."""

from __future__ import annotations

import json
from collections.abc import Iterable

import apache_beam as beam

from beam_jobs.leakage.findings import find
from beam_jobs.leakage.rows import Watched
from beam_jobs.leakage.state import Known

LEAKAGE = "leakage"  # a side output of steps that see accepted records

Accumulator = bytes | Known | None  # None before there is any; bytes until there are more


class FindLeaks(beam.CombineFn):
    """What bundles know, as bytes -> what is found, as JSON. `watched`: of rows; None for images."""

    def __init__(self, watched: Watched | None) -> None:
        self.watched = watched

    def create_accumulator(self) -> Accumulator:
        return None

    def add_input(self, accumulator: Accumulator, element: bytes) -> Accumulator:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Accumulator]) -> Accumulator:
        parts = [part for part in accumulators if part is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        total = _opened(parts[0])
        for part in parts[1:]:
            total.merge(_opened(part))
        return total

    def extract_output(self, accumulator: Accumulator) -> bytes:
        if accumulator is None:
            return b"{}"
        return json.dumps(find(_opened(accumulator), self.watched), allow_nan=False).encode()


def _opened(part: bytes | Known) -> Known:
    return Known.from_bytes(part) if isinstance(part, bytes) else part


def find_leaks(watched: Watched | None) -> beam.PTransform:
    """What bundles know, as bytes -> what is found, as JSON; nothing, if there was no record."""
    return beam.CombineGlobally(FindLeaks(watched)).without_defaults()
