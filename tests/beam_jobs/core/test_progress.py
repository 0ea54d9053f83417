"""The line that shows how far a job is, what workers count for it, and how many bundles work at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_jobs.core.options import RejectLimit
from beam_jobs.core.progress import Clock, Counters, done, render
from beam_jobs.core.workers import TURN
from beam_jobs.rows.read import ReadForAnalysis
from schemas.concurrency import usable_cores
from schemas.formats import row_format
from schemas.rows import RowRange
from schemas.samples.tables import sample_blocks
from schemas.spec import shipped
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema

ROWS = ("analyzing", "transforming", "writing")
IMAGES = ("ingesting", "writing")


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (Counters(passes=ROWS), "starting  [7 s]"),
        (Counters("analyzing", ROWS, total=100), "pass 1 of 3, analyzing: 0 records; 0 %  [7 s]"),
        (
            Counters("analyzing", ROWS, total=100, read=9_000, consumed=40, rejected=12),
            "pass 1 of 3, analyzing: 9,000 records, 12 rejected; 20 %  [7 s]",
        ),
        (
            Counters("transforming", ROWS, total=100, read=5, done=50, consumed=50),
            "pass 2 of 3, transforming: 5 records; 65 %  [7 s]",
        ),
        (Counters("transforming", ROWS[1:], total=100), "pass 1 of 2, transforming: 0 records; 0 %  [7 s]"),
        (Counters("ingesting", IMAGES, total=8, done=4, read=4), "pass 1 of 2, ingesting: 4 records; 40 %  [7 s]"),
        (
            Counters("writing", ROWS, total=100, written=3, shards=6),
            "pass 3 of 3, writing: 3 of 6 shards; 90 %  [7 s]",
        ),
        (Counters("writing", ROWS, read=300), "pass 3 of 3, writing: 300 records; 80 %  [7 s]"),  # by a cluster
        (Counters("committing", ROWS), "committing  [7 s]"),
        (Counters("waiting for workers", total=100), "waiting for workers: 0 records  [7 s]"),
        (Counters("analyzing", total=100, read=5, done=25), "analyzing: 5 records, 25 %  [7 s]"),  # of another process
    ],
)
def test_a_line_says_which_pass_and_what_share_of_the_job(now: Counters, line: str) -> None:
    assert render(now, seconds=7, rate=0) == line


def test_the_share_only_grows_through_the_passes() -> None:
    course = [Counters(passes=ROWS)]
    course += [Counters(phase, ROWS, total=10, done=n) for phase in ROWS[:2] for n in range(11)]
    course += [Counters("writing", ROWS, written=n, shards=4) for n in range(5)]
    course += [Counters("committing", ROWS)]
    shares = [done(now) for now in course]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_the_rate_is_that_of_the_pass_and_the_rest_takes_as_long_as_the_share_before_it() -> None:
    clock = Clock(begun=100.0)
    assert clock.line(Counters(passes=ROWS), 103.0) == "starting  [3 s]"
    assert clock.line(Counters("analyzing", ROWS, total=100), 104.0) == "pass 1 of 3, analyzing: 0 records; 0 %  [4 s]"
    line = clock.line(Counters("analyzing", ROWS, total=100, read=600, consumed=40), 124.0)
    assert line == "pass 1 of 3, analyzing: 600 records, 30 records/s; 20 %, about 1 min 20 s left  [24 s]"
    line = clock.line(Counters("transforming", ROWS, total=100, read=10), 154.0)
    assert line == "pass 2 of 3, transforming: 10 records; 50 %, about 50 s left  [54 s]"
    assert clock.line(Counters("committing", ROWS), 204.0) == "committing  [1 min 44 s]"


def free_turns() -> int:
    """How many bundles could begin now."""
    count = sum(TURN.acquire(blocking=False) for _ in range(1000))
    for _ in range(count):
        TURN.release()
    return count


TURNS = usable_cores()


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


def test_turns_are_given_back_when_a_later_step_fails(read_and_group) -> None:
    read, group = read_and_group
    for _ in range(2):
        with pytest.raises(ValueError, match="injected"), beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | beam.Create([group]) | beam.ParDo(read) | beam.Map(fail)
        assert free_turns() == TURNS
