"""What keeps the published figures honest, and the pages and pipelines as they are said to be.

None of it needs the optional packages. `python -m benchmarks.bench --quick` runs it all.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import models, report, results, scale_plan
from benchmarks.contests import CONTESTS, FLOOR, OURS
from benchmarks.measure import Figures, WorkFailed, measure
from benchmarks.rivals import csv_floor, models_sklearn
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
        "| **Millrace** | 50 |  | 10000.0 | 1.00 |",
        f"| *{FLOOR}* | 100 | 0.5x | 5000.0 | 1.00 |",
    ]


def test_a_command_on_a_wide_table_is_held_to_its_seconds_and_a_job_to_its_memory():
    taken = {"cpu": 24.0, "wall": 40.0, "peak_mb": 1024.0}
    kept = results.Kept({}, {"1000": {"preprocess": taken, "init": taken}, "5000": {"preprocess": taken}})
    assert [(goal.what, goal.cpu, goal.met) for goal in report.wide_goals(kept)] == [
        ("1,000 columns, preprocess: of 20 s", 1.2, False),
        ("1,000 columns, init: of 30 s", 0.8, True),
        ("1,000 columns, preprocess: of 2 GB", None, True),
        ("5,000 columns, preprocess: of 180 s", 24 / 180, True),
        ("5,000 columns, preprocess: of 4 GB", None, True),
    ]


@pytest.mark.parametrize(
    ("wanted", "value", "shown"), [(0.05, 0.0512, "0.051x"), (0.05, 0.0312, "0.03x"), (1.08, 1.084, "1.084x")]
)
def test_a_missed_goal_is_shown_with_the_places_that_tell_it_from_the_goal(wanted: float, value: float, shown: str):
    assert report.Goal("", wanted, value, None, at_most=True).shown == shown


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
        ("census: guards, of a job", 0.5, pytest.approx(0.04), True),
        ("mnist: guards, of a job", 0.5, 0.8, False),
    ]


def runs(*losses: float, **more: float) -> dict[str, dict[str, float]]:
    return {str(seed): {"loss": loss, "cpu": 30.0, "wall": 20.0, **more} for seed, loss in enumerate(losses, 1)}


def a_set(models: dict[str, Any], *, text: bool = False) -> dict[str, Any]:
    return {"rows": 50_000, "columns": 10, "classes": text, "text": text, "models": models}


def test_a_model_is_held_to_the_mean_loss_of_its_rival():
    table = {report.DEFAULT: runs(1.1, 1.2), report.HGB: runs(1.0, 1.0), report.LINEAR: runs(2.0)}
    text = {report.DEFAULT: runs(0.5, accuracy=0.875), report.TF_IDF: runs(0.5, accuracy=0.75)}
    kept = results.Kept(
        {"date": "today", "real_data": "true", "load": "1"},
        {"diamonds": a_set(table), "tweets": a_set(text, text=True)},
    )
    assert report.models(kept).splitlines()[2:4] == [
        "| diamonds, 50,000 x 10, squared error | 1.1500 ± 0.0707, 30 s; **1.150x** |  | 2.0000, 30 s "
        "| 1.0000 ± 0.0000, 30 s |  |  |",
        "| tweets, 50,000 x 10, log loss | 0.5000, 87.5%, 30 s; 1.000x |  |  |  | 0.5000, 75.0%, 30 s |  |",
    ]
    assert [(goal.what.split(": ", 1)[1], round(goal.wall, 6), goal.met) for goal in report.model_goals(kept)] == [
        ("the worst loss of a table (diamonds), to HistGradientBoosting", 1.15, False),
        ("loss on tweets, to TF-IDF + LogisticRegression", 1.0, True),
        ("loss on diamonds, to a prototype's on another split", round(1.15 / 287_000, 6), True),
        ("50,000 rows of 10 columns: of 60 s", round(20 / 60, 6), True),
    ]


def test_one_table_may_be_further_from_its_rival():
    tables = {
        name: a_set({report.DEFAULT: runs(loss), report.HGB: runs(1.0)}) for name, loss in (("a", 1.05), ("b", 1.02))
    }
    found = [(goal.wanted, goal.met) for goal in report.model_goals(results.Kept({}, tables))]
    assert found == [(report.ONCE, True), (report.BESIDE[report.DEFAULT][1], True)]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # 200 epochs of few rows
@pytest.mark.parametrize("model", list(models_sklearn.MODELS))
@pytest.mark.parametrize("classes", [False, True])
def test_scikit_learn_is_scored_on_the_test_split(model, classes, tmp_path):
    draw = np.random.default_rng(1)
    for split, count in (("train", 300), ("test", 40)):
        of = draw.integers(0, 2, count)
        labels = np.where(of, "yes", "no") if classes else of * 100.0
        words = [["red wine", "blue cheese"][i] for i in of]
        numbers = [f",{x:.3f}" if i % 7 else "," for i, x in enumerate(draw.normal(size=count))]
        rows = zip(words, numbers if model != "tf_idf" else [""] * count, labels, strict=True)
        head = "a,b,y" if model != "tf_idf" else "a,y"
        lines = [f"{word}{number},{label}" for word, number, label in rows]
        (tmp_path / f"{split}.csv").write_text("\n".join([head, *lines]) + "\n")
    scores = tmp_path / "scores.json"
    args = [model, str(tmp_path), "--label", "y", "--scores", str(scores), *["--classes"] * classes]
    assert models_sklearn.main(args) == 0
    found = json.loads(scores.read_text())
    assert found.keys() == ({"loss", "accuracy", "auc"} if classes else {"loss"})
    assert found["loss"] < (0.2 if classes else 400)


def test_sets_and_their_models_are_those_that_the_table_shows():
    shown = {report.DEFAULT, report.TREES, report.LINEAR, report.HGB, report.RIDGE, report.MLP, report.TF_IDF}
    assert {name for each in models.SETS.values() for name in models.models_of(each)} == shown
    assert {*models.OURS, *models.RIVALS} == shown
    assert set(models.RIVALS.values()) == set(models_sklearn.MODELS)
    assert {*report.SECONDS, *report.PROTOTYPE} <= set(models.SETS)


def test_a_set_that_is_not_here_is_left_out_and_said(monkeypatch, tmp_path):
    monkeypatch.delenv("MILLRACE_TEST_DATA", raising=False)
    with pytest.raises(models.NoData, match="MILLRACE_TEST_DATA"):
        models.prepare("census", tmp_path, tmp_path / "census")


def test_the_steps_of_a_small_training_are_what_more_steps_take_more():
    runs = {"500": {"cpu": 7.0, "wall": 9.0}, "5000": {"cpu": 16.0, "wall": 18.0}}  # 2 ms a step, and 6 s or 8 s
    goals = report.small_goals(results.Kept({}, {"small": runs}))
    assert [(goal.what, goal.wall, goal.cpu, goal.met) for goal in goals] == [
        ("small, 500 steps: of 8 s", 9 / 8, 7 / 8, True),
        ("small, 5,000 steps: all else, of the steps", pytest.approx(0.8), pytest.approx(0.6), False),
    ]
