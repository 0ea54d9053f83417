"""Predictions are there completely or not at all: kills, full disks, other writers, earlier predictions."""

from __future__ import annotations

import dataclasses
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import predict as bulk
from beam_jobs import preprocess
from beam_jobs.predicting import job
from schemas.dataset import layout, lease
from schemas.exports.notes import read_notes, write_notes
from schemas.predictions.manifest import read_predictions
from tests.support.exports import make_hostile, write_in_init
from tests.support.forking import Forking
from tests.support.predicted import assert_whole, by_the_job

pytestmark = pytest.mark.long


@pytest.fixture
def argv(titanic_model, titanic_csv, tmp_path) -> list[str]:
    """The arguments of a job that writes to `tmp_path / "out"`."""
    arguments = ["--saved_model", str(titanic_model.export), "--input", str(titanic_csv), "--quiet"]
    return [*arguments, "--output", str(tmp_path / "out")]


def test_a_job_that_is_killed_anywhere_in_its_commit_leaves_the_old_predictions_or_the_new(argv, tmp_path):
    """A copy before each step of the commit is what SIGKILL would leave there."""
    jobs = [
        {"argv": argv, "program": "predict"},
        {
            "argv": [*argv, "--overwrite", "--shard_size_mb", "0.05"],
            "program": "predict",
            "snapshots": [str(tmp_path / "out"), str(tmp_path / "copies")],
        },
    ]
    with Forking("tensorflow", "beam_jobs.records.result") as forking:
        runs = []
        for asked in jobs:
            (report,) = forking.run(asked)
            assert report["status"] == 0, report["stderr"]
            runs.append(read_predictions(str(tmp_path / "out")).run)
    copies = sorted((tmp_path / "copies").iterdir(), key=lambda path: int(path.name))
    assert len(copies) > 5
    seen = []
    for copy in copies:
        manifest = read_predictions(str(copy))
        assert_whole(copy, manifest)
        seen.append(manifest.run)
    assert seen == sorted(seen, key=runs.index)
    assert set(seen) == set(runs)


@pytest.fixture
def little_room() -> Iterator[None]:
    """No file may become larger than 20 KB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_full_disk_is_said_and_nothing_stays(argv, tmp_path, capsys, form):
    assert bulk.main([*argv, "--format", form]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "predictions-" in said
    assert said.endswith("File too large. Free some space, or use another disk.")
    assert os.listdir(tmp_path / "out") == []


def test_another_writer_is_named(argv, tmp_path, capsys):
    with lease.hold(str(tmp_path / "out"), run="another"):
        assert bulk.main(argv) == 1
    assert "another job is writing to it: run another" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def test_earlier_predictions_are_replaced_only_when_that_is_asked_for(
    argv, titanic_model, titanic_csv, tmp_path, capsys
):
    out = tmp_path / "out"
    runs = [by_the_job(titanic_model.export, out, titanic_csv).run]
    assert bulk.main(argv) == 2
    assert "already contains predictions. Give --overwrite" in capsys.readouterr().err
    (out / "20200101T000000Z-dead" / "staging").mkdir(parents=True)  # of a job that was killed
    for _ in range(2):
        runs.append(by_the_job(titanic_model.export, out, titanic_csv, more=("--overwrite",)).run)
        assert read_predictions(str(out)).previous == (runs[-2],)  # whoever reads it may still do so
    assert sorted(os.listdir(out)) == sorted([*runs[-2:], layout.MANIFEST])


@pytest.mark.parametrize("held", ["dataset", "something else"])
def test_a_folder_that_holds_something_else_is_refused_and_stays(argv, titanic, tmp_path, capsys, held):
    (tmp_path / "out").mkdir()
    if held == "dataset":
        (tmp_path / "out" / layout.MANIFEST).write_bytes((Path(titanic.path) / layout.MANIFEST).read_bytes())
    else:
        (tmp_path / "out" / "precious").write_text("kept")
    names = os.listdir(tmp_path / "out")
    assert bulk.main([*argv, "--overwrite"]) == 2
    assert f"--output {tmp_path / 'out'}: holds " in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == names


def test_a_dataset_does_not_replace_predictions(argv, titanic_model, titanic_csv, tmp_path, capsys):
    out = tmp_path / "out"
    by_the_job(titanic_model.export, out, titanic_csv)
    names = sorted(os.listdir(out))
    dataset = ["--schema", "titanic", "--input", str(titanic_csv), "--output", str(out), "--overwrite"]
    assert preprocess.main(dataset) == 2
    assert f"--output {out}: holds predictions, and no dataset" in capsys.readouterr().err
    assert sorted(os.listdir(out)) == names


@pytest.fixture
def export(titanic_model, tmp_path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(titanic_model.export, tmp_path / "1"))


def test_an_export_that_was_changed_is_not_loaded(argv, export, tmp_path, capsys):
    with (export / "saved_model.pb").open("ab") as file:
        file.write(b"\0")
    assert bulk.main(["--saved_model", str(export), *argv[2:]]) == 1
    assert "saved_model.pb: was changed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_export_that_can_do_more_than_compute_is_loaded_only_with_trust(argv, export, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    victim = tmp_path / "there" / "victim"
    make_hostile(export, victim, write_in_init)
    assert bulk.main(["--saved_model", str(export), *argv[2:]]) == 1
    assert "give --trust" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert not list(victim.parent.iterdir())
    assert bulk.main(["--saved_model", str(export), *argv[2:], "--trust"]) == 0
    assert list(victim.parent.iterdir())


def test_an_export_that_is_replaced_while_the_job_runs_ends_it(argv, export, tmp_path, capsys, monkeypatch):
    original = job.BulkPrediction.pipeline

    def replaced(*given: Any) -> Any:
        build = original(*given)
        notes = read_notes(str(export))[1]
        newer = dataclasses.replace(notes, global_step=notes.global_step + 1)
        write_notes(str(export), newer, (export / "assets.extra" / layout.SCHEMA_YAML).read_bytes())
        return build

    monkeypatch.setattr(job.BulkPrediction, "pipeline", replaced)
    assert bulk.main(["--saved_model", str(export), *argv[2:]]) == 1
    assert f"{export}: was replaced by another export while the job ran" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []
