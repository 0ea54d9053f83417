"""What keeps the published figures honest. None of it needs the optional packages.

`python -m benchmarks.run --small` runs all candidates.
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

from benchmarks import model_sets, report
from benchmarks.candidates import csv_plain, sklearn_models
from benchmarks.contests import CONTESTS, GRADIENT_BOOSTING, LINEAR, OURS, TABULAR, TF_IDF
from benchmarks.inputs import INPUTS, MadeInput, MadeInputs, copies
from benchmarks.measure import BenchmarkTask, Figures, WorkFailed, measure
from benchmarks.run import compare

ROOT = Path(__file__).parents[2]
CONDITIONS = {"date": "today", "real_data": "true", "load": "1"}


def figures(*, seconds: float = 2.0, **changes: Any) -> Figures:
    return Figures(**{"count": 100, "seconds": seconds, "cpu": 1.0, "peak_bytes": 1 << 30, **changes})


@pytest.mark.slow
def test_what_another_candidate_writes_is_read_back_in_a_process_of_its_own(tmp_path: Path) -> None:
    source = MadeInputs(tmp_path, small=True)["covertype"]
    output = tmp_path / "out"
    output.mkdir()
    task = BenchmarkTask(kind="write", function="", source=source.path, table="covertype", rows=source.rows)
    csv_plain.floor(dataclasses.replace(task, output=str(output)))
    read = measure(BenchmarkTask(kind="read", function="read_back:read", source=str(output), table="covertype", rows=0))
    compare(read, source)
    assert read.seconds > 0
    assert (read.peak_bytes or 0) > 100 << 20


def test_other_classes_and_lost_rows_fail() -> None:
    source = MadeInput(path="", table="", rows=100, classes={0: 60, 1: 40})
    compare(figures(classes={"0": 60, "1": 40}), source)
    with pytest.raises(WorkFailed, match="99 records, and the source holds 100"):
        compare(figures(count=99, classes={"0": 60, "1": 39}), source)
    with pytest.raises(WorkFailed, match="classes"):
        compare(figures(classes={"0": 40, "1": 60}), source)
    compare(figures(classes={"0": 100}), MadeInput(path="", table="", rows=100, classes={}))


def test_a_candidate_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"not a photo")
    with pytest.raises(WorkFailed, match=r"photos_pillow:write_nothing: exit status 1: (.|\n)*UnidentifiedImageError"):
        measure(BenchmarkTask(kind="write", function="photos_pillow:write_nothing", source=str(tmp_path), rows=1))


def test_every_candidate_has_a_function_and_its_input() -> None:
    for contest in CONTESTS:
        names = [candidate.name for candidate in contest.candidates]
        assert len(set(names)) == len(names)
        for candidate in contest.candidates:
            module, _, function = candidate.function.partition(":")
            text = (ROOT / "benchmarks" / "candidates" / f"{module}.py").read_text()
            (arguments,) = re.findall(rf"^def {function}\(task: BenchmarkTask(.*)\) ->", text, re.MULTILINE)
            assert "**options" in arguments or all(f"{name}:" in arguments for name in candidate.options)
            assert candidate.source in {**INPUTS, **model_sets.SETS}
            assert contest.group in ("models", "scale") or candidate.beside in names


def test_copies_of_rows_are_distinct() -> None:
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


def test_a_table_shows_medians_ratios_and_missed_goals() -> None:
    contest = CONTESTS[0]
    loop, floor = contest.candidates[2].name, contest.candidates[3].name
    runs = {
        OURS: [figures(seconds=seconds) for seconds in (1.0, 2.0, 4.0)],
        loop: [figures(seconds=5.992)],
        floor: [figures(seconds=1.0, cpu=0.5)],
    }
    measured = report.Results().with_contest(contest, runs, CONDITIONS)
    assert report.table(measured, contest).splitlines()[2:] == [
        "| **Millrace** | 50 |  |  | 10000.0 | 1.00 |",
        f"| {loop} | 16.7 | **2.996x** | ≥3x | 10000.0 | 1.00 |",
        f"| *{floor}* | 100 | 0.50x |  | 5000.0 | 1.00 |",
    ]


def test_a_model_is_compared_with_the_mean_loss_of_another() -> None:
    def trained(*losses: float, **more: float) -> list[Figures]:
        return [figures(cpu=30.0, scores={"loss": loss, **more}) for loss in losses]

    sets = {contest.name: contest for contest in CONTESTS if contest.group == "models"}
    table = {TABULAR: trained(1.1, 1.2), GRADIENT_BOOSTING: trained(1.0, 1.0), LINEAR: trained(2.0)}
    text = {TABULAR: trained(0.5, accuracy=0.875), TF_IDF: trained(0.5, accuracy=0.75)}
    measured = report.Results().with_contest(sets["diamonds"], table, CONDITIONS)
    measured = measured.with_contest(sets["tweets"], text, CONDITIONS)
    assert report.models(measured, list(sets.values())).splitlines()[2:] == [
        "| diamonds, 100 rows, squared error | 1.1500 ± 0.0707, 30 s; **1.150x** |  | 2.0000, 30 s "
        "| 1.0000 ± 0.0000, 30 s |  |  |",
        "| tweets, 100 rows, log loss | 0.5000, 87.5%, 30 s; 1.000x |  |  |  | 0.5000, 75.0%, 30 s |  |",
    ]


def test_the_pages_show_the_results_that_are_stored() -> None:
    contents = report.blocks(report.load())
    for page in report.PAGES:
        text = page.read_text(encoding="utf-8")
        assert report.fill(text, contents) == text, f"{page.name}: python -m benchmarks.report"


def test_other_candidates_use_no_more_of_millrace_than_its_list_of_shards() -> None:
    for path in (ROOT / "benchmarks" / "candidates").glob("*.py"):
        if path.name.startswith("millrace_") or path.name == "read_back.py":
            continue
        for name in re.findall(r"^from (beam_jobs|trainer|schemas)[\w.]* import (\w+)", path.read_text(), re.MULTILINE):
            assert name == ("schemas", "open_dataset"), path.name


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # 200 epochs of few rows
@pytest.mark.parametrize("model", list(sklearn_models.MODELS))
@pytest.mark.parametrize("classes", [False, True])
def test_scikit_learn_is_scored_on_the_test_split(model: str, classes: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for split, count in (("train", 300), ("test", 40)):
        classes_of = draw.integers(0, 2, count)
        labels = np.where(classes_of, "yes", "no") if classes else classes_of * 100.0
        words = [["red wine", "blue cheese"][i] for i in classes_of]
        numbers = [f",{x:.3f}" if i % 7 else "," for i, x in enumerate(draw.normal(size=count))]
        rows = zip(words, numbers if model != "tf_idf" else [""] * count, labels, strict=True)
        head = "a,b,y" if model != "tf_idf" else "a,y"
        text = [f"{word}{number},{label}" for word, number, label in rows]
        (tmp_path / f"{split}.csv").write_text("\n".join([head, *text]) + "\n")
    (tmp_path / "facts.json").write_text(json.dumps({"label": "y", "classes": classes}))
    task = BenchmarkTask(kind="train", function="", source=str(tmp_path), rows=300)
    scores = sklearn_models.train(task, model=model)
    assert scores.keys() == ({"loss", "accuracy", "auc"} if classes else {"loss"})
    assert scores["loss"] < (0.2 if classes else 400)
