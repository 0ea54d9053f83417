"""One table says how raw data is read, for every format that a schema can declare."""

from __future__ import annotations

from beam_jobs.runs.sources import SOURCES
from schemas.spec.messages import FORMATS


def test_every_schema_has_its_kind_of_source():
    assert set(SOURCES) == set(FORMATS.values())
