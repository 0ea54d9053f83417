"""Promotions of trained models by the command: better, worse, equal and bad ones, and what is said of each."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from millrace import promote
from schemas.dataset import OpenDataset
from tests.support.csv_datasets import LATE
from tests.support.datasets import written_rows
from tests.support.training import TrainedModel
from trainer import task
from trainer.promotion.serving_folder import ServingFolder

pytestmark = pytest.mark.slow

SLICED = LATE + "promote: {slices: [work], slice_margin: 0.1, accuracy: 0.95}\n"


def write_late(folder: Path, *, flipped: str = "", first: int = 0) -> None:
    """6,000 rows; where `work` is `flipped`, the label is the other one."""
    lines = []
    for i in range(first, first + 6000):
        age, work = 20 + i * 7 % 40, "abc"[i % 3]
        late = (age > 40) != (work == flipped)
        lines.append(f"r{i},{age},{i % 60},{work},{'yes' if late else 'no'}")
    written_rows(folder, SLICED, "id,age,hours,work,late", lines)


@pytest.fixture(scope="session")
def data(share_dataset) -> OpenDataset:
    return share_dataset("late_6000", write_late)


@pytest.fixture(scope="session")
def other_data(share_dataset) -> OpenDataset:
    """Of the same schema, measured on other rows, in which one slice is the other way round."""
    return share_dataset("late_flipped", lambda folder: write_late(folder, flipped="c", first=90_000))


def trained(dataset: OpenDataset, folder: Path, steps: int, *more: str) -> None:
    """What the command prints lies in `done.json`."""
    argv = ["--data_dir", dataset.path, "--model_dir", str(folder / "model"), "--model", "dnn", "--no_report"]
    argv += ["--hparams", "hidden_units=32", "learning_rate=0.05", "--max_steps", str(steps), "--batch_size", "32"]
    argv += ["--save_checkpoints_steps", str(steps), "--seed", "1", "--deterministic", *more]
    with (folder / "done.json").open("w") as out, contextlib.redirect_stdout(out):
        assert task.main(argv) == 0


@pytest.fixture(scope="session")
def good(share, data) -> Path:
    """Put in service by the training itself, too."""

    def train(folder: Path) -> None:
        trained(data, folder, 150, "--json", "--promote_to", str(folder / "serving"))

    return TrainedModel(share("late_good", train) / "model").export


@pytest.fixture(scope="session")
def bad(share, data) -> Path:
    return TrainedModel(share("late_bad", lambda folder: trained(data, folder, 1)) / "model").export


@pytest.fixture(scope="session")
def flipped(share, other_data) -> Path:
    return TrainedModel(share("late_flipped_model", lambda folder: trained(other_data, folder, 150)) / "model").export


@pytest.fixture
def run(capfd, tmp_path):
    """`run(export, *flags)`: the exit code, and the decision or error as JSON."""

    def run(export: object, *flags: str) -> tuple[int, dict]:
        capfd.readouterr()
        source = [] if export is None else ["--from", str(export)]
        code = promote.main([*source, "--to", str(tmp_path / "serving"), "--json", "--quiet", *flags])
        return code, json.loads(capfd.readouterr().out)

    return run


def test_a_better_one_is_promoted_a_worse_one_refused_and_the_same_one_is_there_already(run, good, bad, tmp_path):
    serving = ServingFolder(str(tmp_path / "serving"))
    code, refused = run(bad)  # nothing is in service, and the schema has a threshold
    assert (code, refused["outcome"], serving.versions()) == (1, "refused", [])
    assert "below the schema's threshold of 0.95" in refused["reasons"][0]
    assert run(bad, "--force")[1]["forced"] is True
    code, promoted = run(good)
    assert (code, promoted["outcome"], promoted["version"], promoted["against"]) == (0, "promoted", 2, 1)
    assert promoted["data"]["rows"] == promoted["data"]["of"] > 1000
    assert [m["verdict"] for m in promoted["metrics"]] == ["no_worse", "no_worse"]
    code, unchanged = run(good.parent)
    assert (code, unchanged["outcome"], unchanged["version"]) == (0, "unchanged", 2)
    code, refused = run(bad)
    assert (code, refused["outcome"]) == (1, "refused")
    assert "is worse than" in refused["reasons"][0]
    assert [entry["outcome"] for entry in serving.decisions()] == ["refused", "promoted", "promoted", "refused"]
    assert serving.versions() == [1, 2]
    code, back = run(None, "--rollback")
    assert (code, back["version"], back["restores"]) == (0, 3, 1)


def test_models_of_two_transforms_are_scored_on_the_same_raw_rows(run, good, flipped, data, other_data):
    """As after a dataset was written again: the newer dataset decides, whose transform the older model never saw."""
    assert run(good)[0] == 0
    code, refused = run(flipped, "--data_dir", data.path, "--margin", "0.9")
    assert (code, refused["outcome"]) == (1, "refused")
    assert any("where work is 'c' falls" in reason for reason in refused["reasons"])
    assert any("was measured anew since" in note for note in refused["notes"])
    code, promoted = run(flipped, "--data_dir", other_data.path)
    assert (code, promoted["outcome"]) == (0, "promoted")
    measured = {m["metric"]: (round(m["serving"], 1), round(m["candidate"], 1)) for m in promoted["metrics"]}
    assert measured["accuracy"] == (0.7, 1.0)


def test_few_rows_cannot_tell_and_it_is_said(run, good, flipped, data, tmp_path):
    raw = (Path(data.path).parent / "rows.csv").read_text().splitlines()
    few = tmp_path / "few.csv"
    few.write_text("\n".join(raw[:150]) + "\n")
    (tmp_path / "plain.yaml").write_text(LATE)
    flags = ["--data_dir", data.path, "--eval_input", str(few), "--schema", str(tmp_path / "plain.yaml")]
    flags += ["--margin", "0.3", "--metric", "accuracy"]
    assert run(good, *flags)[0] == 0
    code, undecided = run(flipped, *flags)
    assert (code, undecided["outcome"]) == (1, "undecided"), undecided
    assert "standard error" in undecided["reasons"][0]
    code, accepted = run(flipped, *flags, "--if_undecided", "accept")
    assert (code, accepted["outcome"]) == (0, "promoted")
    assert any("undecided: accuracy" in note for note in accepted["notes"])


def moved(data: OpenDataset, folder: Path) -> Path:
    """The dataset in another folder, read from a `rows.csv` there; returns that file."""
    raw = folder / "rows.csv"
    shutil.copytree(data.path, folder / "out")
    shutil.copyfile(Path(data.path).parent / "rows.csv", raw)
    manifest = folder / "out" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(Path(data.path).parent / "rows.csv"), str(raw)))
    return raw


def test_where_the_inputs_are_gone_it_is_said_that_the_kept_records_are_too_few(run, data, tmp_path, good):
    raw, elsewhere = moved(data, tmp_path), tmp_path / "elsewhere.csv"
    raw.rename(elsewhere)
    code, error = run(good, "--data_dir", str(tmp_path / "out"))
    assert code == 1
    assert "too few to compare models by" in error["error"]
    assert "--eval_input" in error["error"]
    assert run(good, "--data_dir", str(tmp_path / "out"), "--eval_input", str(elsewhere))[0] == 0


def test_a_changed_input_is_noticed(run, data, tmp_path, good):
    raw = moved(data, tmp_path)
    lines = raw.read_bytes().splitlines(keepends=True)
    raw.write_bytes(b"".join(lines[:2000]) + b"\n" * len(b"".join(lines[2000:])))  # as many bytes
    code, error = run(good, "--data_dir", str(tmp_path / "out"))
    assert code == 1
    assert "the file has changed since" in error["error"]


def test_the_dataset_of_a_model_that_was_trained_in_another_folder_is_known(late, tmp_path, monkeypatch, capsys):
    """By its whole path, whatever --data_dir was; where it is not there any more, the error says what to give.

    So are its inputs, whose paths are relative to the folder that the dataset is in.
    """
    folder = tmp_path / "here"
    shutil.copytree(late.path, folder / "data")
    raw = late.manifest.inputs[0].path
    (folder / "raw").mkdir()
    shutil.copyfile(raw, folder / "raw" / "rows.csv")
    manifest = folder / "data" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(raw, "raw/rows.csv"))
    monkeypatch.chdir(folder)
    steps = ["--max_steps", "1", "--model", "softmax", "--no_report"]
    assert task.main(["--data_dir", "data", "--model_dir", "model", *steps]) == 0
    monkeypatch.chdir(tmp_path)
    argv = ["--from", "here/model", "--to", "serving", "--if_undecided", "accept", "--margin", "0.9"]
    capsys.readouterr()
    assert promote.main(argv) == 0, capsys.readouterr().err
    (folder / "data").rename(tmp_path / "data")
    assert promote.main([*argv[:3], "other"]) == 2
    message = f"was trained on the dataset {folder}/data, which is not there; give --data_dir, the folder where that"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--margin", "-1"], "must be 0 or more"),
        (["--margin", "x"], "expected a number, or NAME=NUMBER such as accuracy=0.005"),
        (["--metric", "mean_absolute_error"], "is not a metric of this label"),
        (["--to_version", "1"], "belongs to --rollback"),
        (["--keep_versions", "1"], "must be 2 or more"),
    ],
)
def test_usage(run, good, flags, message):
    code, error = run(good, *flags)
    assert code == 2
    assert message in error["error"]


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("gs://bucket/serving", "copy the version that is in service to the bucket afterwards"),
        ("hdfs://host/serving", "unsupported address"),
    ],
)
def test_only_a_local_folder_takes_versions(capsys, to, message):
    assert promote.main(["--rollback", "--to", to]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --to {to}: ")
    assert message in error


def test_training_promotes_by_itself(good):
    folder = good.parents[3]
    done = json.loads((folder / "done.json").read_text())
    assert done["promotion"]["outcome"] == "promoted"
    assert ServingFolder(str(folder / "serving")).versions() == [1]
    assert np.isclose(done["metrics"]["eval"]["accuracy"], done["promotion"]["metrics"][0]["candidate"], atol=1e-6)


@pytest.mark.parametrize("name", ["stripes", "patterns"])
def test_image_models_are_scored_on_the_files_that_were_read(run, request, tmp_path, name):
    model = request.getfixturevalue(f"{name}_model")
    code, refused = run(model.export)  # its model_fn is one of one's own, which model.json names
    assert (code, "--trust" in refused["error"]) == (2, True)
    code, first = run(model.export, "--metric", "accuracy", "--trust")
    assert (code, first["outcome"]) == (0, "promoted"), first
    assert first["data"]["rows"] == first["data"]["of"] > 0
    code, copy = run(model.model_dir / "export" / "final")
    assert (code, copy["outcome"]) == (0, "unchanged")
