"""What releases 0.1.0 and 0.2.0 wrote (`fixtures/v0_1_0`, `v0_2_0`) opens, trains and serves for ever after."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs import job, preprocess
from beam_jobs import predict as batch_predict
from millrace import promote
from millrace.label import command as label
from millrace.tune import command as tune
from schemas.dataset import open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.exports.notes import NOTES_FORMAT
from schemas.predictions.manifest import read_predictions
from tests.support.dataset_faults import assert_every_damage_is_found
from tests.support.model_server import Client, serving
from tests.support.predicted import read_lines
from trainer import evaluate, predict, task, verify
from trainer.model_dir.model_json import read_evaluations

FIXTURES = Path(__file__).parent / "fixtures"
TRAIN_ROWS = {"v0_1_0/csv": 226, "v0_1_0/images": 31, "v0_2_0/csv": 200, "v0_2_0/images": 28}
RAW = {"v0_1_0": ("raw.csv",), "v0_2_0": ("day1.csv", "day2.csv")}
HPARAMS = {"v0_1_0": ("hidden_units=8",), "v0_2_0": ("hidden_units=8", "learning_rate=0.02")}
CORRECTIONS = {"heavy": "12.5", "perhaps": "no", "maybe": "no"}
ALL_ROWS = {"v0_1_0": 302, "v0_2_0": 306}  # once what can be corrected is
SERVED = ("key", "class", "class_id", "error")


@pytest.fixture(params=TRAIN_ROWS)
def release(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a fixture's folder, `<version>/<kind>`: `data`, `model` and the raw input. Tests run in it."""
    copy = Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param))
    if (copy / "serving").exists():  # the promoted export is that of the model, byte for byte
        shutil.copytree(export_of(copy), copy / "serving/1")
    monkeypatch.chdir(copy)
    return copy


def of(*names: str) -> pytest.MarkDecorator:
    """The folders of the fixtures that a test is about."""
    return pytest.mark.parametrize("release", names, indirect=True)


def version(release: Path) -> str:
    return release.parent.name


def export_of(release: Path) -> Path:
    (export,) = (p for p in (release / "model/export/best").iterdir() if p.is_dir())
    return export


def raw_input(release: Path) -> list[str]:
    if release.name == "csv":
        return list(RAW[version(release)])
    return sorted(str(p.relative_to(release)) for p in (release / "files").rglob("*.png"))


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON object that the last command printed."""
    return json.loads(capsys.readouterr().out)


def test_a_dataset_opens_and_verifies(release: Path) -> None:
    dataset = open_dataset("data")
    assert dataset.rows("train") == TRAIN_ROWS[f"{version(release)}/{release.name}"]
    assert verify_dataset("data") == []


@pytest.mark.slow
def test_an_export_of_an_earlier_release_predicts_the_same(release: Path) -> None:
    asked = ["--saved_model", str(export_of(release)), "--input", *raw_input(release)]
    if version(release) == "v0_1_0":  # which was asked with paths of another form
        asked = [str(release / each) if each in raw_input(release) else each for each in asked]
    assert predict.main([*asked, "--output", "predictions.jsonl"]) == 0
    found, expected = read_lines(release / "predictions.jsonl"), read_lines(release / "predictions.jsonl.expected")
    assert len(found) == len(expected)
    for line, wanted in zip(found, expected, strict=True):
        assert (line["class"], line.get("offset")) == (wanted["class"], wanted.get("offset"))
        name = "probabilities" if release.name == "csv" else "top_5"
        if name in wanted:
            np.testing.assert_allclose(list(line[name].values()), list(wanted[name].values()), rtol=1e-4)
    rejects = release / "predictions.rejects.jsonl.expected"
    if rejects.exists():
        assert read_lines(release / "predictions.rejects.jsonl") == read_lines(rejects)


@pytest.mark.slow
def test_training_resumes_and_exports_anew(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_csv = release.name == "csv"
    model, steps = ("dnn", 62) if is_csv else ("softmax", 32)  # two more than the release trained
    hparams = ("--hparams", *HPARAMS[version(release)]) if is_csv else ("--batch_size", "8")
    argv = ["--data_dir", "data", "--model_dir", "model", "--model", model, *hparams, "--seed", "1"]
    assert task.main([*argv, "--max_steps", str(steps)]) == 0
    assert (release / f"model/model.ckpt-{steps}.index").exists()
    (final,) = (release / "model/export/final").iterdir()
    capsys.readouterr()
    assert verify.main(["--data_dir", "data", "--saved_model", str(final)]) == 0
    assert "earlier release" not in capsys.readouterr().err
    if (release / "serving").exists():
        asked = ["--from", "model/export/final", "--to", "serving", "--if_undecided", "accept", "--margin", "0.5"]
        assert promote.main([*asked, "--json"]) == 0
        assert (printed(capsys)["version"], (release / "serving/2/saved_model.pb").exists()) == (2, True)
        outcomes = [(each["outcome"], each["version"]) for each in read_lines(release / "serving/decisions.jsonl")]
        assert outcomes == [("promoted", 1), ("promoted", 2)]
        assert promote.main(["--rollback", "--to", "serving"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "metric"),
    [
        ("v0_1_0/csv", "average_loss"),
        ("v0_1_0/images", "loss"),
        ("v0_2_0/csv", "auc"),  # the one that it was chosen by
        ("v0_2_0/images", "loss"),
    ],
    indirect=["release"],
)
def test_its_best_export_stays_the_best_where_training_makes_it_worse(release: Path, metric: str) -> None:
    """It is measured, and exported, as today's are."""
    best = release / "model/export/best/best.json"
    before, (evaluation,) = json.loads(best.read_text()), read_evaluations(str(release / "model"))
    old = tf.train.load_checkpoint(str(export_of(release) / "variables/variables"))
    worse: tuple[str, ...] = (
        "--model",
        "dnn",
        "--hparams",
        "hidden_units=8",
        "learning_rate=1000",
    )  # it has decayed to 10
    if release.name == "images":
        worse = ("--model", "softmax", "--hparams", "learning_rate=10", "--batch_size", "8")
    argv = ["--data_dir", "data", "--model_dir", "model", *worse, "--allow_changes", "--no_report", "--seed", "1"]
    argv += ["--deterministic"]
    argv += ["--best_metric", metric] if metric != before["metric"] else []
    assert task.main([*argv, "--max_steps", str(evaluation["global_step"] + 4)]) == 0
    mark = json.loads(best.read_text())
    assert (mark["export"] != before["export"], mark["notes_format"]) == (True, NOTES_FORMAT)
    assert (mark["metric"], mark["global_step"]) == (metric, evaluation["global_step"])
    assert mark["value"] == pytest.approx(evaluation[metric], abs=0.01)  # areas under curves were rounded
    new = tf.train.load_checkpoint(str(best.parent / mark["export"] / "variables/variables"))
    for name in old.get_variable_to_shape_map():
        np.testing.assert_array_equal(new.get_tensor(name), old.get_tensor(name))


@pytest.mark.slow
@of("v0_1_0/csv", "v0_1_0/images")
def test_an_export_verifies_with_the_advice_to_export_again(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--data_dir", "data", "--saved_model", str(export_of(release))]) == 0
    told = capsys.readouterr()
    assert "no skew" in told.out
    assert "export the model again" in told.err


@pytest.mark.slow
@of("v0_2_0/csv", "v0_2_0/images")
def test_an_export_verifies(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--data_dir", "data", "--saved_model", str(export_of(release))]) == 0
    assert "no skew" in capsys.readouterr().out


@pytest.mark.slow
@of("v0_1_0/csv", "v0_2_0/csv")
def test_rejects_are_replayed(release: Path) -> None:
    run = open_dataset("data").run
    corrected = [reject for path in (release / "data" / run).glob("rejects-*.jsonl") for reject in read_lines(path)]
    for reject in corrected:
        for wrong, right in CORRECTIONS.items():
            reject["raw"] = reject["raw"].replace(wrong, right)
    corrected = [reject for reject in corrected if reject["reason"] != "too_few_columns"]
    (release / "corrected.jsonl").write_text("".join(f"{json.dumps(reject)}\n" for reject in corrected))
    assert preprocess.main(["--replay", "corrected.jsonl", "--append_to", "data"]) == 0
    assert open_dataset("data").manifest.written == ALL_ROWS[version(release)]
    assert_every_damage_is_found(release / "data", release)


def write_third_day(release: Path) -> None:
    """Two rows under keys of their own."""
    header, *rows = (release / "day2.csv").read_text().splitlines()
    renamed = [row.replace("P004", "P005") for row in rows[:2]]
    (release / "day3.csv").write_text("\n".join([header, *renamed]) + "\n")


@pytest.mark.long
@of("v0_2_0/csv")
def test_rows_are_appended_and_measured_anew(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_third_day(release)
    assert preprocess.main(["--append_to", "data", "--input", "*day[0-9].csv", "--skip_known", "--quiet"]) == 0
    grown = open_dataset("data")
    assert (grown.manifest.written, verify_dataset("data")) == (305, [])
    assert sum(split.rows for split in grown.manifest.splits.values()) == 305
    capsys.readouterr()
    again = ["--append_to", "data", "--input", "day*.csv", "--skip_known", "--reanalyze"]
    assert preprocess.main(again) == 0
    told = capsys.readouterr().err
    assert "309 records of 3 runs as measured" in told or "was kept with" in told  # by another Python, say
    measured = open_dataset("data")
    assert (measured.run != grown.run, measured.manifest.written, verify_dataset("data")) == (True, 305, [])


@pytest.mark.long
@of("v0_2_0/images")
def test_images_are_appended(release: Path) -> None:
    assert preprocess.main(["--append_to", "data", "--input", "more/*/*", "--quiet"]) == 0
    assert (open_dataset("data").manifest.written, verify_dataset("data")) == (47, [])
    assert preprocess.main(["--append_to", "data", "--input", "files/*/*", "--skip_known", "--quiet"]) == 0
    assert open_dataset("data").manifest.written == 47


def test_a_replayed_dataset_opens_and_verifies() -> None:
    data = str(FIXTURES / "v0_2_0/replayed/data")
    manifest = open_dataset(data).manifest
    assert (manifest.read, manifest.written, manifest.rejected) == (120, 119, 1)
    assert verify_dataset(data) == []


@pytest.mark.long
@of("v0_2_0/csv")
def test_a_model_is_evaluated_as_its_training_evaluated_it(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert evaluate.main(["--data_dir", "data", "--model_dir", "model", "--output", "report", "--json"]) == 0
    before, now = json.loads((release / "model/metrics-eval.json").read_text()), printed(capsys)
    assert (now["rows"], now["step"]) == (before["rows"], before["metrics"]["global_step"])
    assert now["metrics"]["accuracy"] == pytest.approx(before["metrics"]["accuracy"], rel=1e-6)
    assert now["metrics"]["log_loss"] == pytest.approx(before["metrics"]["average_loss"], rel=1e-5)


@pytest.mark.slow
@of("v0_2_0/csv")
def test_a_promoted_export_is_known(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (release / "serving/1.json").read_bytes()
    assert promote.main(["--from", "model/export/best", "--to", "serving", "--json"]) == 0
    assert printed(capsys)["version"] == 1
    assert (release / "serving/1.json").read_bytes() == before
    assert sorted(os.listdir(release / "serving")) == ["1", "1.json", "decisions.jsonl"]


@pytest.mark.slow
@of("v0_2_0/csv")
def test_a_store_answers_what_it_holds_goes_on_and_is_labelled(
    release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its end is torn, as a kill leaves it. Twelve rows were labelled, of which one waits since its labels differ."""
    asked = json.loads((release / "served.json").read_text())
    with serving("serving", store="store") as server, Client(server) as client:
        for each in asked:
            status, answer = client.predict(each["request"])
            assert status == each["status"]
            for row, then in zip(answer["predictions"], each["answer"]["predictions"], strict=True):
                assert [row[name] for name in SERVED] == [then[name] for name in SERVED]
                np.testing.assert_allclose(row["probabilities"], then["probabilities"], rtol=1e-4)
        again = {**asked[0]["request"]["instances"][0], "parcel": "P09999"}
        assert client.predict({"instances": [again], "id": "new-1"})[0] == 200
        changed = client.predict({"instances": [again], "id": "day2-0"})[1]["predictions"][0]
        assert changed["error"] != ""  # another request has that id
    stored = [row for path in sorted(release.glob("store/*.csv")) for row in csv_rows(path)]
    assert len({row["_id"] for row in stored}) == len(stored)
    (release / "labels2.csv").write_text("_id,late\nday2-3,no\nday2-12,yes\nday2-1,no\nnew-1,yes\n")
    assert label.main(["--store", "store", "--join", "labels2.csv", "--output", "labelled", "--json"]) == 0
    printed(capsys)
    rows = csv_rows(release / "labelled/labelled-000002.csv")
    assert [(row["parcel"], row["late"]) for row in rows] == [("P00403", "no"), ("P00412", "yes"), ("P09999", "yes")]


@pytest.mark.long
def test_a_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(shutil.copytree(FIXTURES / "v0_2_0/replayed", tmp_path / "replayed"))
    space = ("--space", "learning_rate=categorical:0.01:0.1:0.5", "--trials", "3", "--search", "random")
    model = ("--model", "linear", "--max_steps", "20", "--save_checkpoints_steps", "20", "--batch_size", "32")
    kept = ("--keep_models", "best", "--best_metric", "average_loss", "--quiet", "--seed", "1", "--no_report")
    assert tune.main(["--data_dir", "data", "--study", "study", *space, *model, *kept, "--json"]) == 0
    numbers = sorted(trial["number"] for trial in printed(capsys)["trials"])
    assert (numbers[:3], numbers) == ([1, 2, 3], list(range(1, len(numbers) + 1)))


@of("v0_2_0/csv")
def test_predictions_of_a_job_are_read(release: Path) -> None:
    found = read_predictions("predictions")
    (shard,) = found.shards
    rows = read_lines(release / "predictions" / shard.path)
    assert (found.read, found.predicted, found.rejected, len(rows)) == (307, shard.rows, 3, shard.rows)
    alone = {line["key"]: line for line in read_lines(release / "predictions.jsonl.expected")}
    assert {row["key"]: row["class"] for row in rows} == {key: line["class"] for key, line in alone.items()}


@pytest.mark.long
@of("v0_2_0/csv")
def test_predictions_of_a_job_are_replaced_by_the_same(release: Path) -> None:
    before = read_predictions("predictions")
    inputs = ("--input", *RAW["v0_2_0"], "--pass_through", "note", "--max_rejects", "10")
    argv = ["--saved_model", str(export_of(release)), *inputs, "--output", "predictions", "--quiet"]
    assert batch_predict.main([*argv, "--overwrite"]) == 0
    after = read_predictions("predictions")
    assert (after.previous, after.counts, after.rejected) == ((before.run,), before.counts, 3)
    then, now = (read_lines(release / "predictions" / each.shards[0].path) for each in (before, after))
    assert [(row["key"], row["class"], row["input"]) for row in now] == [
        (row["key"], row["class"], row["input"]) for row in then
    ]


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the output of a submitted job that is committed, and of another one that waits on its runner."""
    copy = Path(shutil.copytree(FIXTURES / "v0_2_0/submitted", tmp_path / "submitted"))
    monkeypatch.chdir(copy)
    return copy


def test_a_submitted_job_is_known_as_committed(submitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_dataset("out").run
    assert job.main(["status", "--output", "out", "--run", run, "--json"]) == 0
    assert printed(capsys)["state"] == "committed"
    assert job.main(["commit", "--output", "out", "--run", run]) == 0
    assert (open_dataset("out").manifest.written, verify_dataset("out")) == (300, [])


@pytest.mark.long
def test_a_submitted_job_that_waits_holds_its_output(submitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its runner answers no more: nothing changes, until it is given up by force."""
    (waiting,) = {path.parent.name for path in (submitted / "out").glob("*/job.json")} - {open_dataset("out").run}
    assert job.main(["cancel", "--output", "out", "--json"]) == 1
    assert "job-002" in printed(capsys)["error"]
    assert (submitted / "out" / waiting / "job.json").exists()
    assert job.main(["cancel", "--output", "out", "--force"]) == 0
    assert not (submitted / "out" / waiting).exists()
    assert not (submitted / "out/lease.json").exists()
    assert verify_dataset("out") == []
