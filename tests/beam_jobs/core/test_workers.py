"""No more bundles are at work in a process than it has cores, and each gives its turn back, however it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_jobs.core.accounting import RejectLimit
from beam_jobs.core.workers import TURN
from beam_jobs.rows.read import ReadForAnalysis
from schemas.formats import row_format
from schemas.rows import RowRange
from schemas.samples.tables import sample_blocks
from schemas.spec import shipped
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema


def free_turns() -> int:
    """How many bundles could begin now."""
    count = sum(TURN.acquire(blocking=False) for _ in range(1000))
    for _ in range(count):
        TURN.release()
    return count


TURNS = os.cpu_count() or 1


def fail(_: Any) -> None:
    raise ValueError("injected")


@pytest.fixture
def read_and_group(tmp_path: Path) -> tuple[ReadForAnalysis, tuple[RowRange, ...]]:
    """A reader, and a range of rows that it yields as one batch."""
    (tmp_path / "rows.csv").write_bytes(b"".join(sample_blocks("covertype", rows=500, seed=1)))
    schema = load_schema(shipped.find("covertype"))
    assert isinstance(schema, Schema)
    rows = row_format(schema)
    file = rows.open_file(str(tmp_path / "rows.csv"), schema, label="required", max_input_ratio=100)
    group = tuple(rows.plan_ranges(file, range_bytes=1 << 20))
    return ReadForAnalysis(schema, str(tmp_path), RejectLimit(0, 0.0), 500), group


def test_a_bundle_has_a_turn_until_its_range_is_read(read_and_group) -> None:
    read, group = read_and_group
    assert free_turns() == TURNS
    batches = read.process(group)
    assert next(batches).num_rows
    assert free_turns() == TURNS - 1
    assert list(batches) == []
    assert free_turns() == TURNS


def test_a_turn_is_given_back_when_reading_is_given_up(read_and_group) -> None:
    read, group = read_and_group
    batches = read.process(group)
    next(batches)
    batches.close()
    assert free_turns() == TURNS


def test_turns_are_given_back_when_a_later_step_fails(read_and_group) -> None:
    read, group = read_and_group
    for _ in range(2):
        with pytest.raises(ValueError, match="injected"), beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | beam.Create([group]) | beam.ParDo(read) | beam.Map(fail)
        assert free_turns() == TURNS
