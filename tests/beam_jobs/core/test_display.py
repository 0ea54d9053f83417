"""What a person reads while a job runs."""

from __future__ import annotations

import pytest

from beam_jobs.core.progress import Clock, Counters, done, render

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
