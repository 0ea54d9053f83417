"""What keeps the published figures honest, and the pages and pipelines as they are said to be.

None of it needs the optional packages. `python -m benchmarks.bench --quick` runs it all.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import report, results, scale_plan
from benchmarks.contests import CONTESTS, FLOOR, OURS
from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.rivals import csv_floor
from benchmarks.rounds import check_written, compare
from benchmarks.sources import QUICK, Source, Sources, copies, lines
from benchmarks.tables import TABLES
from benchmarks.task import Task

ROOT = Path(__file__).parents[2]
SMALL = dataclasses.replace(QUICK, covertype=200, tiny=100)


def figures(**changes: Any) -> Figures:
    plain: dict[str, Any] = {
        "count": 100,
        "seconds": 2.0,
        "cpu": 1.0,
        "whole_seconds": 3.0,
        "whole_cpu": 2.0,
        "peak_bytes": 1 << 30,
    }
    return Figures(**(plain | changes))


@pytest.mark.slow
def test_what_a_rival_writes_is_read_back(tmp_path):
    source = Sources(str(tmp_path), SMALL)["covertype"]
    task = Task(source=source.path, output=str(tmp_path), table="covertype", rows=source.rows)
    csv_floor.write(task)
    check_written("the floor", task, source)
    with pytest.raises(WorkFailed, match="200 records"):
        check_written("the floor", task, dataclasses.replace(source, rows=201))


def test_other_classes_are_found():
    source = Source(path="", rows=100, classes={0: 60, 1: 40}, real=False)
    compare("a way", figures(classes={"0": 60, "1": 40}), source)
    with pytest.raises(WorkFailed, match=r"classes"):
        compare("a way", figures(classes={"0": 40, "1": 60}), source)
    shares = dataclasses.replace(source, exact=False)
    compare("a way", figures(classes={"0": 58, "1": 42}), shares)
    with pytest.raises(WorkFailed, match=r"class 0 is 1"):
        compare("a way", figures(classes={"0": 100}), shares)


@pytest.mark.parametrize("does", sorted({entry.does for contest in CONTESTS for entry in contest.entries}))
def test_every_way_is_there(does):
    module, function = does.split(":")
    text = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    assert re.search(rf"^def {function}\(task: Task\)", text, re.MULTILINE)


def test_contests_name_sources_that_can_be_made(tmp_path):
    sources = Sources(str(tmp_path), SMALL)
    named = {entry.source for contest in CONTESTS for entry in contest.entries}
    assert named <= set(sources._makers)
    assert all(contest.entries[0].name == OURS for contest in CONTESTS)


def test_copies_of_rows_are_distinct():
    rows = [b"7, 39, a,b\n", b"7,40.5,,b\r\n", b"7,?,a,b\n"]
    assert list(itertools.islice(copies(rows, column=1), 9)) == [
        *rows,
        *(b"7, 39.001, a,b\n", b"7,40.5001,,b\r\n", b"7,?,a,b\n"),
        *(b"7, 39.002, a,b\n", b"7,40.5002,,b\r\n", b"7,?,a,b\n"),
    ]
    endless = copies([b"4095,1\n", b"4094,1\n"], column=0)
    many = list(itertools.islice(endless, 2000))
    assert len({np.float32(row.split(b",")[0]) for row in many}) == 2000
    with pytest.raises(ValueError, match="1,000 copies"):
        next(endless)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_copies_of_each_table_keep_labels_and_differ(table):
    header, rows = lines(table)
    several = list(itertools.islice(rows, 250_000 if table != "mnist" else 25_000))
    once = several.index(next(row for row in several if b".001" in row))
    first, second = several[:once], several[once : 2 * once]
    assert not set(first) & set(second)
    at = TABLES[table].label_column
    assert [row.split(b",")[at] for row in first[: len(second)]] == [row.split(b",")[at] for row in second]
    assert header.count(b",") in (0, first[0].count(b","))


def test_tables_tell_medians_and_ratios():
    contest = CONTESTS[0]
    runs = {OURS: [figures(seconds=s) for s in (1.0, 2.0, 4.0)], FLOOR: [figures(seconds=1.0, cpu=0.5)]}
    found = results.Results().with_contest(contest, runs, {"date": "today", "real_data": "true"}, load=0.5)
    assert report.table(found, contest).splitlines()[2:] == [
        "| **Millrace** | 50 |  | 10000.0 | 1.00 | 3.0 (2.0) |",
        f"| *{FLOOR}* | 100 | 0.5x | 5000.0 | 1.00 | 3.0 (2.0) |",
    ]


def test_a_command_on_a_wide_table_is_held_to_its_seconds_and_a_job_to_its_memory():
    taken = {"cpu": 24.0, "wall": 40.0, "peak_mb": 1024.0}
    kept = results.Kept({}, {"1000": {"preprocess": taken, "init": taken}, "5000": {"preprocess": taken}})
    assert [(goal.what, goal.cpu, goal.met) for goal in report.wide_goals(kept)] == [
        ("1,000 columns, preprocess: of 20 s of CPU", 1.2, False),
        ("1,000 columns, init: of 30 s of CPU", 0.8, True),
        ("1,000 columns, preprocess: of 2 GB", None, True),
        ("5,000 columns, preprocess: of 180 s of CPU", 24 / 180, True),
        ("5,000 columns, preprocess: of 4 GB", None, True),
    ]


def test_the_pages_show_the_results_that_are_kept():
    found = results.load()
    contents = report.blocks(found)
    for page in report.PAGES:
        text = page.read_text(encoding="utf-8")
        assert report.fill(text, contents) == text, f"{page.name}: python -m benchmarks.report"


def test_no_way_reads_what_it_measures_by_another_name():
    """Rivals are on their own: they use this project's list of shards at most."""
    for path in (ROOT / "benchmarks" / "rivals").glob("*.py"):
        for name in re.findall(r"^from (beam_jobs|trainer|schemas)[\w.]* import (\w+)", path.read_text(), re.MULTILINE):
            assert name == ("schemas", "open_dataset"), path.name


def test_a_measurement_is_of_its_own_process(tmp_path):
    ballast = np.ones(300 << 20, np.uint8)  # what this process holds is not counted
    found = measure("tests.benchmarks.measured_work:write", Task(source="", output=str(tmp_path), rows=7))
    assert (tmp_path / "done").exists()
    assert found.count == 7
    assert found.whole_seconds >= found.seconds > 0
    assert found.whole_cpu >= found.cpu
    assert 100 << 20 < (found.peak_bytes or 0) < len(ballast) + (100 << 20)


@pytest.mark.slow
def test_a_pipeline_of_a_hundred_thousand_files_is_as_small_as_one_of_a_hundred(capfd: pytest.CaptureFixture[str]):
    assert scale_plan.main(["--kinds", "csv", "--files", "100", "100000", "--terabytes", "1"]) == 0
    few, many = (line.split() for line in capfd.readouterr().out.splitlines()[1:])
    sizes = [int(line[2].replace(",", "")) for line in (few, many)]
    assert sizes[1] < 1_000_000
    assert sizes[1] - sizes[0] < 5_000


def test_what_guards_add_is_judged_by_cpu_of_pairs():
    pair = {"with": {"seconds": 2.0, "cpu": 1.0}, "without": {"seconds": 1.0, "cpu": 0.96}}
    slow = {"with": {"seconds": 2.0, "cpu": 5.0}, "without": {"seconds": 1.0, "cpu": 1.0}}
    goals = report.guard_goals(results.Kept({}, {"census": [pair, slow, pair], "mnist": [slow]}))
    assert [(goal.what, goal.wall, goal.cpu, goal.met) for goal in goals] == [
        ("census: statistics, drift and leakage, of a job", 0.5, pytest.approx(0.04), True),
        ("mnist: statistics, drift and leakage, of a job", 0.5, 0.8, False),
    ]


def test_the_steps_of_a_small_training_are_what_more_steps_take_more():
    runs = {"500": {"cpu": 7.0, "wall": 9.0}, "5000": {"cpu": 16.0, "wall": 18.0}}  # 2 ms a step, and 6 s or 8 s
    goals = report.small_goals(results.Kept({}, {"small": runs}))
    assert [(goal.what, goal.wall, goal.cpu, goal.met) for goal in goals] == [
        ("small, 500 steps: of 8 s of CPU", 9 / 8, 7 / 8, True),
        ("small, 5,000 steps: all else, of the steps", pytest.approx(0.8), pytest.approx(0.6), False),
    ]
