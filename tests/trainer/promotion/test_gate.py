"""What the gate says about two models' answers; and the folder that is served, whose versions appear whole."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from schemas import interrupts
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import ExportNotes, check_files, read_notes, write_notes
from schemas.spec.forms import PromoteRules
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE
from trainer.evaluation.predictions import Predictions, PredictionTarget
from trainer.evaluation.scoring import Scored
from trainer.evaluation.slices import Slice
from trainer.promotion.gate import default_metrics, judge
from trainer.promotion.options import PromoteOptions
from trainer.promotion.promote import roll_back
from trainer.promotion.serving_folder import ASIDE, LOG, ServingFolder


def model(right: np.ndarray) -> Predictions:
    """Predictions of two classes that are right on some rows."""
    rows = len(right)
    label = np.arange(rows) % 2
    score = np.where(label == right, 0.8, 0.2)
    predicted, loss = np.where(right, label, 1 - label), np.where(right, 0.2, 1.6)
    return Predictions(label, np.ones(rows), predicted, score, loss, loss, loss, PredictionTarget(("no", "yes")))


def scored(candidate: np.ndarray, serving: np.ndarray | None, slices: tuple[Slice, ...] = (), answered=None) -> Scored:
    models = [model(candidate), *([model(serving)] if serving is not None else [])]
    masks = answered or tuple(np.ones(len(candidate), bool) for _ in models)
    return Scored(tuple(models), masks, slices, ("no", "yes"))


def right(rows: int, share: float) -> np.ndarray:
    return np.arange(rows) < share * rows


@pytest.mark.parametrize(
    ("rows", "candidate", "serving", "verdict"),
    [
        (10_000, 0.90, 0.80, "no_worse"),
        (10_000, 0.795, 0.80, "no_worse"),  # within the margin, and so many rows tell it
        (10_000, 0.75, 0.80, "worse"),
        (20, 0.80, 0.80, "undecided"),  # 20 rows cannot tell 1 %
        (20, 0.20, 0.95, "worse"),  # but they can tell this
    ],
)
def test_the_verdict_is_what_the_rows_can_tell(rows, candidate, serving, verdict):
    models = scored(right(rows, candidate), right(rows, serving))
    judgement = judge(models, PromoteRules(), ["accuracy"], {})
    (of_loss,) = judge(models, PromoteRules(), ["log_loss"], {}).metrics
    assert judgement.metrics[0].verdict == verdict
    assert np.sign(of_loss.gain or 0) == np.sign(round(candidate - serving, 6))  # upwards is better for losses, too
    assert bool(judgement.refusals) == (verdict == "worse")
    assert bool(judgement.doubts) == (verdict == "undecided")


def test_a_doubt_says_how_many_rows_would_tell():
    judgement = judge(scored(right(500, 0.8), right(500, 0.8)), PromoteRules(margin=0.001), ["accuracy"], {})
    assert "standard error" in judgement.doubts[0]
    assert "rows would decide it" in judgement.doubts[0]


@pytest.mark.parametrize(
    ("rules", "refusal"),
    [
        (PromoteRules(accuracy=0.7), None),
        (PromoteRules(accuracy=0.9), "accuracy 0.8 .* is below the schema's threshold of 0.9"),
        (PromoteRules(log_loss=0.1), "log_loss 0.48 .* is above the schema's threshold of 0.1"),
        (PromoteRules(log_loss=0.5), None),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_thresholds_hold_for_the_first_export_too(rules, refusal, first):
    serving = None if first else right(5000, 0.8)
    judgement = judge(scored(right(5000, 0.8), serving), rules, default_metrics(("no", "yes")), {})
    if refusal is None:
        assert judgement.refusals == ()
    else:
        (message,) = judgement.refusals
        assert re.search(refusal, message)


def test_a_slice_that_falls_refuses_though_the_whole_gains():
    rows = np.arange(10_000)
    part = rows < 500
    serving = rows % 5 != 0
    candidate = np.where(part, rows % 2 == 0, rows % 10 != 0)  # from 80 to 50 % there, from 80 to 90 elsewhere
    slices = (Slice("work", "a", part), Slice("work", "b", ~part), Slice("work", "few", rows < 10))
    judgement = judge(scored(candidate, serving, slices), PromoteRules(slices=("work",)), ["accuracy"], {})
    assert judgement.metrics[0].verdict == "no_worse"
    assert [(s.value, s.verdict) for s in judgement.slices] == [("a", "worse"), ("b", "no_worse")]
    assert judgement.notes == ("not judged: 1 slice of fewer than 30 rows",)
    (refusal,) = judgement.refusals
    assert "where work is 'a' falls from 0.8 to 0.5" in refusal


def test_forty_slices_of_equal_models_refuse_nothing():
    rng = np.random.default_rng(1)
    rows = 4000
    parts = tuple(Slice("x", str(i), np.arange(rows) % 40 == i) for i in range(40))
    refused = 0
    for _ in range(40):
        candidate, serving = (rng.random(rows) < 0.8 for _ in range(2))
        refused += bool(
            judge(scored(candidate, serving, parts), PromoteRules(slice_margin=0.0), ["accuracy"], {}).refusals
        )
    assert refused <= 8  # 5 % of 40 is 2


def test_an_export_that_leaves_rows_unanswered_is_refused_and_is_compared_on_what_both_answer():
    rows = 4000
    everything, half = np.ones(rows, bool), np.arange(rows) % 2 == 0
    judgement = judge(
        scored(right(rows, 0.8), right(rows, 0.8), answered=(half, everything)), PromoteRules(), ["accuracy"], {}
    )
    assert judgement.metrics[0].rows == 2000
    assert "gives no prediction for 2,000 of 4,000 rows" in judgement.refusals[0]


ROOT = Path(__file__).parents[3]


@pytest.fixture
def serving(tmp_path) -> ServingFolder:
    return ServingFolder(str(tmp_path / "serving"))


def put(serving: ServingFolder, export: str, *, keep: int = 10, first: bool = False) -> int:
    """Promotes without a gate; `first`: as if nothing were in service."""
    with serving.copied(export) as aside:
        record = {"outcome": "promoted", "export": export}
        return serving.publish(aside, record, after=None if first else serving.current(), keep=keep)


def exports(tmp_path: Path, count: int) -> list[str]:
    return [write_nominal_export(tmp_path / f"export-{i}", f"model {i}\n") for i in range(count)]


def content(serving: ServingFolder, version: int) -> str:
    return Path(serving.folder(version), "saved_model.pb").read_text().strip()


def test_versions_grow_each_with_its_line_in_the_log(serving, tmp_path):
    paths = exports(tmp_path, 3)
    assert [put(serving, export) for export in paths] == [1, 2, 3]
    assert serving.versions() == [1, 2, 3]
    assert [(entry["version"], entry["export"]) for entry in serving.decisions()] == list(enumerate(paths, 1))
    for n in (1, 2, 3):
        check_files(serving.folder(n), read_notes(serving.folder(n))[1])


def test_numbers_go_on_from_exports_that_others_put_there(serving, tmp_path):
    write_nominal_export(Path(serving.path) / "1700000000", "theirs")
    assert put(serving, exports(tmp_path, 1)[0]) == 1700000001


def test_old_versions_are_removed_and_their_decisions_stay(serving, tmp_path):
    for export in exports(tmp_path, 5):
        put(serving, export, keep=2)
    assert serving.versions() == [4, 5]
    assert sorted(os.listdir(serving.path)) == ["4", "5", LOG]
    assert len(serving.decisions()) == 5


def test_a_copy_that_differs_from_its_checksums_is_not_put_in_service(serving, tmp_path):
    (export,) = exports(tmp_path, 1)
    Path(export, "variables", "1").write_text("changed")
    with pytest.raises(MillraceError, match="was changed"):
        put(serving, export)
    assert os.listdir(serving.path) == []


def test_of_two_promotions_at_once_one_wins(serving, tmp_path):
    paths = exports(tmp_path, 8)

    def promote(export: str) -> int | str:
        try:
            return put(ServingFolder(serving.path), export, first=True)
        except MillraceError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(promote, paths))
    assert [version for version in done if isinstance(version, int)] == [1]
    assert [str(other) for other in done if "version 1 was put" not in str(other)] == ["1"]
    assert serving.versions() == [1]
    assert sorted(os.listdir(serving.path)) == ["1", LOG]
    assert content(serving, 1) == f"model {done.index(1)}"


def test_rolling_back_goes_back_step_by_step_as_new_versions(serving, tmp_path):
    for export in exports(tmp_path, 3):
        put(serving, export)
    first, second = (roll_back(PromoteOptions(to=serving.path, rollback=True)) for _ in range(2))
    assert (first.version, first.restores, second.version, second.restores) == (4, 2, 5, 1)
    assert [content(serving, n) for n in (4, 5)] == ["model 1", "model 0"]
    with pytest.raises(UsageError, match="no version before 1"):
        roll_back(PromoteOptions(to=serving.path, rollback=True))
    third = roll_back(PromoteOptions(to=serving.path, rollback=True, to_version=3))
    assert (third.version, content(serving, 6)) == (6, "model 2")
    with pytest.raises(UsageError, match="cannot return to version 9; there are 1, 2, 3, 4, 5"):
        roll_back(PromoteOptions(to=serving.path, rollback=True, to_version=9))
    assert [entry["outcome"] for entry in serving.decisions()] == ["promoted"] * 3 + ["rolled_back"] * 3


def test_the_line_of_a_promotion_that_was_killed_before_its_version_was_there_is_replaced(serving, tmp_path):
    first, second = exports(tmp_path, 2)
    put(serving, first)
    log = Path(serving.path, LOG)
    killed = {"outcome": "rolled_back", "version": 2, "restores": 1}
    log.write_text(f"{log.read_text()}{json.dumps(killed)}\n")
    put(serving, second)
    assert [(entry["version"], entry["outcome"]) for entry in serving.decisions()] == [(1, "promoted"), (2, "promoted")]


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_in_service_is_promoted_whatever_signal_comes_then(serving, tmp_path, monkeypatch, fails):
    append = ServingFolder._append

    def interrupted(self: ServingFolder, record: dict[str, object]) -> None:
        signal.raise_signal(signal.SIGINT)
        if fails:
            raise MillraceError("the disk is full")
        append(self, record)

    monkeypatch.setattr(ServingFolder, "_append", interrupted)
    (export,) = exports(tmp_path, 1)
    with interrupts.interruptible():
        if fails:
            with pytest.raises(KeyboardInterrupt) as caught:
                put(serving, export)
            assert str(caught.value.__context__) == "the disk is full"
            interrupts.handled()
        else:
            assert put(serving, export) == 1
            interrupts.check()
    assert serving.versions() == ([] if fails else [1])


PROMOTES = """
import sys
from trainer.promotion.serving_folder import ServingFolder
serving = ServingFolder(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while True:
    for export in sys.argv[2:]:
        with serving.copied(export) as aside:
            serving.publish(aside, {"export": export}, after=serving.current(), keep=3)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_whole_versions(serving, tmp_path):
    paths, chance = exports(tmp_path, 2), random.Random(1)
    highest, rounds = 0, 0
    while rounds < 12 or not highest:  # on a slow disk it takes longer until one is in service
        rounds += 1
        command = [sys.executable, "-c", PROMOTES, serving.path, *paths]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            process.stdin.write(b"\n")
            process.stdin.flush()
            time.sleep(chance.random() * 0.3 * max(1, rounds - 11))
            process.kill()
        for version in serving.versions():
            check_files(serving.folder(version), read_notes(serving.folder(version))[1])
        assert (serving.current() or 0) >= highest
        highest = serving.current() or 0
    put(serving, paths[0])
    assert [name for name in os.listdir(serving.path) if name.startswith(ASIDE)] == []
    logged = [entry["version"] for entry in serving.decisions()]
    assert logged == sorted(set(logged))
    assert set(serving.versions()) <= set(logged)
    assert serving.current() == logged[-1]


def write_nominal_export(folder: Path, content: str) -> str:
    """Writes one; exports of other content have other checksums."""
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    for i in range(3):
        (folder / "variables" / str(i)).write_text(content * 1000)
    schema = LATE.encode()
    fingerprint = parse_schema(schema, "late.yaml").fingerprint
    notes = ExportNotes("run", fingerprint, ("no", "yes"), 1, 1, format_version=1)
    write_notes(str(folder), notes, schema)
    return str(folder)
