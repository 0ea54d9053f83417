"""Killed and concurrent appends: each row is in the dataset once, whatever happens."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import layout, open_dataset
from tests.support.appending import Days, assert_holds, ids, raw_ids

pytestmark = pytest.mark.long

LEAN_SCHEMA = """\
name: days
format: csv
csv: {header: present, missing: ["?"]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: none}
  - {name: pay, kind: ignore}
  - {name: size, kind: ignore}
  - {name: city, kind: ignore}
  - {name: grade, kind: ignore}
  - {name: note, kind: ignore}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""


@pytest.fixture
def days(tmp_path: Path) -> Days:
    """A dataset of the first day."""
    days = Days(tmp_path)
    (tmp_path / "days.yaml").write_text(LEAN_SCHEMA)
    days.write(days.day(0))
    return days


def command(output: str | Path, *inputs: str) -> dict[str, Any]:
    return {"argv": ["--append_to", str(output), "--input", *inputs, "--quiet"]}


def held(output: str | Path) -> list[str]:
    return sorted(i for some in ids(open_dataset(str(output))).values() for i in some)


def test_an_append_killed_at_any_step_of_its_commit_adds_all_rows_or_none_and_the_next_one_the_rest(days, run_jobs):
    copies, new = days.path / "copies", days.day(1)
    (unhurt,) = run_jobs({**command(days.output, new), "snapshots": [days.output, str(copies)]})
    assert unhurt["status"] == 0, unhurt["stderr"]
    before, after = raw_ids(days.day(0)), raw_ids(days.day(0), new)
    steps = unhurt["steps"]
    left = {n: held(copies / str(n)) for n in range(1, len(steps) + 1)}
    assert all(found in (before, after) for found in left.values())
    first_after = next(n for n, found in left.items() if found == after)
    assert all((found == after) == (n >= first_after) for n, found in left.items())
    for n in (first_after - 1, first_after, random.Random(0).randrange(1, len(steps))):
        (report,) = run_jobs(command(copies / str(n), new))
        assert report["status"] == (0 if left[n] == before else 2), report["stderr"]
        assert_holds(open_dataset(str(copies / str(n))), days.day(0), new)


def test_an_append_killed_while_it_reads_changes_nothing(days, run_jobs):
    new = days.day(1)
    before = Path(days.output, layout.MANIFEST).read_bytes()
    copy = shutil.copytree(days.output, days.path / "copy")
    (unhurt,) = run_jobs(command(copy, new))
    (killed,) = run_jobs({**command(days.output, new), "kill_after": unhurt["seconds"] / 2})
    if killed["status"] == -9 and Path(days.output, layout.MANIFEST).read_bytes() == before:
        (again,) = run_jobs(command(days.output, new))
        assert again["status"] == 0, again["stderr"]
    assert_holds(days.dataset, days.day(0), new)
    assert {p.name for p in Path(days.output).iterdir()} == {layout.MANIFEST, *days.dataset.manifest.runs}


def test_of_two_appends_at_once_no_row_is_added_twice_and_none_is_lost(days, run_jobs):
    """Of the same file; then of two files, of which the one that was refused is given again."""
    one, other = days.day(1), days.day(2)
    won, lost = sorted(run_jobs(command(days.output, one), command(days.output, one)), key=lambda r: r["status"])
    assert (won["status"], lost["status"] in (1, 2)) == (0, True), won["stderr"]
    assert "another job is writing to it" in lost["stderr"] or "--skip_known" in lost["stderr"]
    assert_holds(days.dataset, days.day(0), one)
    three = days.day(3)
    reports = dict(zip((other, three), run_jobs(command(days.output, other), command(days.output, three)), strict=True))
    for path, report in reports.items():
        if report["status"]:
            assert "another job is writing to it" in report["stderr"]
            (again,) = run_jobs(command(days.output, path))
            assert again["status"] == 0, again["stderr"]
    assert_holds(days.dataset, days.day(0), one, other, three)
    assert len(days.dataset.manifest.appended) == 3
