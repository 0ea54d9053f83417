"""The benchmark's own parts: its inputs, what it refuses, and what is made of its figures.

None of it needs the optional packages. `python -m benchmarks.bench --quick` runs it all.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    bench,
    curves,
    goals,
    kept,
    machine,
    measured_tables,
    report,
    results,
    shuffle_quality,
)
from benchmarks.check import check_written, compare
from benchmarks.contests import (
    BARE,
    BARE_PILLOW,
    BARE_SCALED,
    CONTESTS,
    FLOOR,
    ORIGINAL,
    ORIGINAL_PLAIN,
    OURS,
    WEBDATASET,
)
from benchmarks.kept import Kept
from benchmarks.measure import Figures, WorkFailed
from benchmarks.rivals import csv_floor
from benchmarks.sources import QUICK, Source, Sources, lines
from benchmarks.task import Task
from schemas import storage

ROOT = Path(__file__).parents[2]
MACHINE = {"date": "today", "real_data": "false", "load": "0.5"}
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


def test_tables_and_goals_do_without_the_ways_that_failed():
    for contest in CONTESTS:
        for entry in contest.entries:
            found = results.Results().with_contest(contest, {entry.name: [figures()]}, {}, load=0.0)
            assert entry.name in report.table_of(found, contest)
            goals.table(found)
            assert len(goals.summary(found).splitlines()) == 2
            with_more = found.with_contest(contest, {}, {}, load=0.0, more=True)
            assert list(with_more.medians(contest.name)) == [entry.name]


def test_only_ways_that_write_are_read_back():
    photos = next(c for c in CONTESTS if c.name == "images_12mp")
    assert [e.name for e in photos.entries if not e.writes] == [BARE_SCALED, BARE_PILLOW]
    assert all(entry.writes for entry in photos.entries if not entry.bound)


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


def test_tables_tell_medians_and_ratios():
    contest = CONTESTS[0]
    runs = {OURS: [figures(seconds=s) for s in (1.0, 2.0, 4.0)], FLOOR: [figures(seconds=1.0, cpu=0.5)]}
    found = results.Results().with_contest(contest, runs, {"date": "today", "real_data": "true"}, load=0.5)
    assert report.table(found, contest).splitlines()[2:] == [
        "| **Millrace** | 50 |  | 10.00 ms |  | 1.00 GB | 3.0 s, CPU 2.0 s | 3 |",
        f"| *{FLOOR}* | 100 | 0.5x | 5.00 ms | 0.5x | 1.00 GB | 3.0 s, CPU 2.0 s | 1 |",
    ]


def test_tables_say_where_inputs_were_made():
    contest = CONTESTS[0]
    found = results.Results().with_contest(contest, {OURS: [figures()]}, {"real_data": "false"}, load=0.5)
    assert report.table(found, contest).startswith(f"| {contest.title}, synthetic samples |")


@pytest.mark.parametrize("change", [{"real_data": "true"}, {"tensorflow": "2.20.0"}, {"processor": "another"}])
def test_more_rounds_are_refused_where_the_conditions_are_others(monkeypatch, tmp_path, capsys, change):
    monkeypatch.delenv("MILLRACE_TEST_DATA", raising=False)
    monkeypatch.setattr(machine, "PACKAGES", ("tensorflow",))  # the others are the rivals'
    monkeypatch.setattr(bench, "FULL", SMALL)
    contest = next(c for c in CONTESTS if c.name == "covertype_6m")
    told = {**machine.describe(real_data=False), "date": "before", **change}
    kept = results.Results().with_contest(contest, {OURS: [figures()]}, told, load=0.0)
    monkeypatch.setattr(results, "load", lambda: kept)
    assert bench.main(["--only", contest.name, "--more", "--work", str(tmp_path)]) == 2
    assert (
        "covertype_6m that are kept are of another machine, other versions or other inputs" in capsys.readouterr().err
    )


def test_inputs_know_whether_they_are_real(monkeypatch, tmp_path):
    real = tmp_path / "data" / "covertype" / "covertype_100k.csv.gz"
    real.parent.mkdir(parents=True)
    monkeypatch.setenv("MILLRACE_TEST_DATA", str(tmp_path / "data"))
    assert not Sources(str(tmp_path), SMALL)["covertype"].real
    real.write_bytes(gzip.compress(b"".join(itertools.islice(lines("covertype")[1], 50))))
    assert Sources(str(tmp_path), SMALL)["covertype"].real
    assert not Sources(str(tmp_path), SMALL)["photos"].real


def test_more_images_than_there_are_files_are_files_of_their_own(monkeypatch, tmp_path):
    """The job reads a file once, whatever the number of its names."""
    monkeypatch.delenv("MILLRACE_TEST_DATA", raising=False)
    source = Sources(str(tmp_path), dataclasses.replace(SMALL, images=100))["photos"]
    found = list(Path(source.path).glob("*/*"))
    assert len({path.read_bytes() for path in found}) < source.rows == 100
    assert len({storage.identity(str(path)) for path in found}) == 100


def test_results_are_kept_contest_by_contest(tmp_path):
    path = tmp_path / "results.json"
    assert results.load(path) == results.Results()
    first, second = CONTESTS[:2]
    found = results.Results().with_contest(first, {OURS: [figures()]}, {}, load=0.0)
    results.save(found, path)
    again = results.load(path).with_contest(second, {OURS: [figures(seconds=1.0)]}, {}, load=0.0)
    assert again.medians(first.name)[OURS].rate == 50
    assert again.medians(second.name)[OURS].rate == 100


def test_goals_are_told_where_they_were_measured():
    runs = {OURS: [figures(count=6000)], FLOOR: [figures(count=12_000)]}
    contest = next(c for c in CONTESTS if c.name == "covertype_6m")
    found = results.Results().with_contest(contest, runs, {}, load=0.0)
    (goal,) = goals.goals(found)
    assert (goal.wall, goal.wanted, goal.met) == (2.0, 2.5, True)


@pytest.mark.parametrize(("faster", "slower"), [(BARE, BARE_PILLOW), (BARE_PILLOW, BARE)])
def test_images_are_held_against_webdataset_and_the_faster_bound(faster, slower):
    runs = {
        OURS: [figures(seconds=4.0)],
        "tf.data loop": [figures(seconds=2.0)],
        WEBDATASET: [figures(seconds=5.0)],
        slower: [figures(seconds=2.0)],
        faster: [figures(seconds=1.0)],
    }
    contest = next(c for c in CONTESTS if c.name == "images")
    found = results.Results().with_contest(contest, runs, {}, load=0.0)
    rival, bound = goals.goals(found)
    assert (rival.wanted, rival.wall, rival.met) == (0.9, 1.25, True)
    assert f"({faster})" in bound.what
    assert bound.wall == 0.25
    assert goals.summary(found).splitlines()[-1].endswith(f"| tf.data loop: 50 | {WEBDATASET}: 20 | 100 |")


@pytest.mark.parametrize(("cpu", "met"), [(1.0, True), (1.1, False)])
def test_large_photos_are_judged_by_the_least_cpu_of_the_others(cpu, met):
    runs = {
        OURS: [figures(seconds=9.0, cpu=cpu)],
        "tf.data loop": [figures(seconds=1.0, cpu=3.0)],
        WEBDATASET: [figures(seconds=2.0, cpu=1.0)],
        BARE_SCALED: [figures(cpu=0.1)],
    }
    contest = next(c for c in CONTESTS if c.name == "images_12mp")
    found = results.Results().with_contest(contest, runs, {}, load=0.0)
    (goal,) = goals.goals(found)
    assert f"({WEBDATASET})" in goal.what
    assert goal.met is met
    assert "| >= 1x by CPU |" in goals.table(found)


@pytest.mark.parametrize(("rate", "told"), [(1234.5, "1,234"), (100.4, "100"), (35.14, "35.1"), (6.0, "6")])
def test_low_rates_keep_three_digits(rate, told):
    assert results.shown(rate) == told


def test_shuffle_scores_of_several_rounds_are_root_mean_squares():
    scores = [shuffle_quality.Score(place=p, shard=0.0, neighbour=0.1, spread=s, rows=9) for p, s in ((3, 1), (-4, 3))]
    found = shuffle_quality.over_rounds(scores)
    assert found.place == pytest.approx(12.5**0.5)
    assert found.neighbour == pytest.approx(0.1)
    assert found.spread == 2


def test_reading_images_is_held_against_both_ways_to_resize():
    runs = {OURS: [figures()], ORIGINAL: [figures(seconds=12.0)], ORIGINAL_PLAIN: [figures(seconds=6.0)]}
    contest = next(c for c in CONTESTS if c.name == "read_images")
    found = results.Results().with_contest(contest, runs, {}, load=0.0)
    assert [(goal.wanted, goal.wall) for goal in goals.goals(found)] == [(4, 3.0), (4, 6.0)]


def test_pages_are_filled_between_their_marks():
    text = "before <!-- bench: a -->old\n<!-- /bench --> between <!-- bench: b --><!-- /bench --> after"
    assert report.fill(text, {"a": "A", "b": "B"}) == (
        "before <!-- bench: a -->\nA\n<!-- /bench --> between <!-- bench: b -->\nB\n<!-- /bench --> after"
    )


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


def test_the_curves_table_has_a_row_for_each_number_of_rows_and_a_column_for_each_of_shards():
    jobs = [
        {"rows": r, "shards": s, "runs": 3, "rows_per_second": r / 2, "peak_mb": 900 + s}
        for r in (1000, 20_000)
        for s in (1, 8)
    ]
    assert curves.table(Kept(MACHINE, jobs[:-1])).splitlines() == [
        "| rows | 1 shard | 8 shards |",
        "|--:|--:|--:|",
        "| 1,000 | 500 rows/s, 901 MB | 500 rows/s, 908 MB |",
        "| 20,000 | 10,000 rows/s, 901 MB |  |",
        "",
        "Measured on today on synthetic samples, at a load average of 0.5. Runs of each: 3.",
    ]


def test_the_training_table_tells_steps_a_second():
    costs = {
        way: {"seconds": seconds, "cpu": 1.0}
        for way, seconds in (("training", 0.01), ("memory", 0.008), ("alone", 0.002))
    }
    found = Kept({**MACHINE, "real_data": "true"}, {"`dnn`": {**costs, "batch_size": 512, "share": 0.2}})
    assert measured_tables.training(found).splitlines()[2:] == [
        "| `dnn` | 512 | 100.0 steps/s | 125.0 steps/s | 500.0 steps/s | 20% |",
        "",
        "Measured on today on the real files, at a load average of 0.5.",
    ]


def test_the_shuffle_table_tells_what_chance_would_give():
    fair = {"place": 0.001, "shard": 0.002, "neighbour": -0.003, "spread": 0.0005, "rows": 10_000}
    found: dict[str, Any] = {"rows": 10_000, "shards": 8, "runs": 3}
    found["scores"] = {"the job's 8 shards": fair, "training, all in memory": fair}
    assert measured_tables.shuffle(Kept(MACHINE, found)).splitlines() == [
        "| 10,000 rows | place | shard | neighbour | spread |",
        "|---|--:|--:|--:|--:|",
        "| the job's 8 shards | 0.0010 | 0.0020 | -0.0030 | 0.000500 |",
        "| training, all in memory | 0.0010 |  | -0.0030 |  |",
        "| chance: one standard deviation, and the spread expected | 0.0100 | 0.0100 | 0.0100 | 0.000700 |",
        "",
        "Runs, each with its seed: 3.",
    ]


def test_figures_are_kept_with_their_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    assert kept.load("scale") is None
    kept.save("scale", Kept(MACHINE, [1, 2]))
    assert kept.load("scale") == Kept(MACHINE, [1, 2])


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_are_one_or_more(rounds, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--rounds", rounds])
    assert f"{rounds!r}: must be 1 or more" in capsys.readouterr().err


def test_the_start_up_is_told_in_seconds():
    contest = next(c for c in CONTESTS if c.name == "startup")
    found = results.Results().with_contest(contest, {OURS: [figures()]}, {"real_data": "true"}, load=0.0)
    assert report.table_of(found, contest).splitlines()[-1] == f"| {OURS} | 2.0 s | 3.0 s | 1.00 GB |"
