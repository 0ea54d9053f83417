"""Predictions are there completely or not at all, whoever is killed, and the same on other runners and in buckets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs import predict as bulk
from beam_jobs import preprocess
from beam_jobs.predicting import job
from schemas.dataset import layout, lease
from schemas.exports.notes import read_notes, write_notes
from schemas.predictions.manifest import PredictionsManifest, read_predictions
from schemas.storage import folders
from tests.support import prism as prisms
from tests.support.exports import make_hostile, write_in_init
from tests.support.forking import Forking
from tests.support.predicted import Row, assert_whole, by_the_job, rejects_of, rows_of

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
        for request in jobs:
            (report,) = forking.run(request)
            assert report["status"] == 0, report["stderr"]
            runs.append(read_predictions(str(tmp_path / "out")).run)
    copies = sorted((tmp_path / "copies").iterdir(), key=lambda path: int(path.name))
    assert len(copies) > 5
    copied_runs = []
    for copy in copies:
        manifest = read_predictions(str(copy))
        assert_whole(copy, manifest)
        copied_runs.append(manifest.run)
    assert copied_runs == sorted(copied_runs, key=runs.index)
    assert set(copied_runs) == set(runs)


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
    message = capsys.readouterr().err.splitlines()[-1]
    assert "predictions-" in message
    assert message.endswith("File too large. Free some space, or use another disk.")
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
    for run in ("20200101T000000Z-dead", runs[0]):  # of jobs that were killed, before and behind their commit
        (out / run / layout.STAGING).mkdir(parents=True)
    for _ in range(2):
        runs.append(by_the_job(titanic_model.export, out, titanic_csv, more=("--overwrite",)).run)
        assert read_predictions(str(out)).previous == (runs[-2],)  # whoever reads it may still do so
        assert not list(out.glob(f"*/{layout.STAGING}"))
    assert sorted(os.listdir(out)) == sorted([*runs[-2:], layout.MANIFEST])


@pytest.mark.parametrize("content", ["dataset", "something else"])
def test_a_folder_that_holds_something_else_is_refused_and_stays(argv, titanic, tmp_path, capsys, content):
    (tmp_path / "out").mkdir()
    if content == "dataset":
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
    assert f"--output {out}: holds predictions, and not a dataset" in capsys.readouterr().err
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

    def replaced(*args: Any) -> Any:
        build = original(*args)
        notes = read_notes(str(export))[1]
        newer = dataclasses.replace(notes, global_step=notes.global_step + 1)
        write_notes(str(export), newer, (export / "assets.extra" / layout.SCHEMA_YAML).read_bytes())
        return build

    monkeypatch.setattr(job.BulkPrediction, "pipeline", replaced)
    assert bulk.main(["--saved_model", str(export), *argv[2:]]) == 1
    assert f"{export}: was replaced by another export while the job ran" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


Run = Callable[
    [Path, Path, str], tuple[list[Row], list[str], PredictionsManifest]
]  # of an export, on files of a folder

ENGINES = {
    "prism_disk": pytest.mark.engines,
    "local_bucket": pytest.mark.cloud,
    "prism_bucket": pytest.mark.cloud,
    "dataflow_bucket": pytest.mark.cloud,
}
SMALL = ("--range_mb", "0.02", "--batch_size", "64", "--max_rejects", "20")  # several bundles
Result = tuple[list[Row], list[str], PredictionsManifest]


def result(output: Path, manifest: PredictionsManifest) -> Result:
    """Predictions and rejects, by the names of the files alone."""
    rows = sorted(
        ({**row, "source": Path(row["source"]).name} for row in rows_of(output, manifest)),
        key=lambda row: (row["source"], row["offset"]),
    )
    rejects = sorted(
        f"{Path(r.source).name} {r.offset} {r.reason} {r.raw.rpartition(b'/')[2]!r}"
        for r in rejects_of(output, manifest)
    )
    return rows, rejects, manifest


@pytest.fixture(params=[pytest.param(name, marks=mark) for name, mark in ENGINES.items()])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Predicts on an engine. What it reads from a bucket is copied there, and what it writes is copied back."""
    runner, _, store = request.param.partition("_")
    ask = request.getfixturevalue
    with contextlib.ExitStack() as stack:
        bucket = ask("running_cloud").new_bucket() if store == "bucket" else ""
        more: tuple[str, ...] = SMALL
        if runner == "prism":
            prism = ask("prism") if store == "disk" else None
            if prism is None:  # of its own: its workers are to have the cloud's environment
                (tmp_path / "prism").mkdir()
                prism = stack.enter_context(prisms.running(tmp_path / "prism"))
            more += ("--runner", "PortableRunner", *prism.beam_args)
        elif runner == "dataflow":
            more += ("--runner", "DataflowRunner", *ask("dataflow").beam_args(bucket))

        def run(export: Path, files: Path, pattern: str) -> Result:
            output = tmp_path / "out"
            if not bucket:
                return result(output, by_the_job(export, output, files / pattern, more=more))
            folders.copy(str(export), f"{bucket}/export/7")
            folders.copy(str(files), f"{bucket}/in")
            manifest = in_bucket(bucket, pattern, output, more)
            return result(output, manifest)

        yield run


def in_bucket(bucket: str, pattern: str, output: Path, more: tuple[str, ...]) -> PredictionsManifest:
    """Predicts in a bucket, and copies the predictions to a folder."""
    from beam_jobs import predict as bulk
    from schemas.predictions.manifest import read_predictions

    argv = ["--saved_model", f"{bucket}/export/7", "--input", f"{bucket}/in/{pattern}", "--output", f"{bucket}/out"]
    assert bulk.main([*argv, "--quiet", *more]) == 0
    folders.copy(f"{bucket}/out", str(output))
    manifest = read_predictions(str(output))
    assert_whole(output, manifest)
    return manifest


def assert_same(predicted: Result, expected: Result) -> None:
    """The same records; predictions of other batches within the tolerance of `verify`."""
    for line, expected_line in zip(predicted[0], expected[0], strict=True):
        here, there = (np.array(list(row.pop("probabilities").values())) for row in (line, expected_line))
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-6)
        assert line == expected_line
    assert predicted[1] == expected[1]
    counts = [(i.read, i.written, i.rejected) for i in sorted(predicted[2].inputs, key=lambda i: Path(i.path).name)]
    assert counts == [(i.read, i.written, i.rejected) for i in expected[2].inputs]


def test_rows(engine, titanic_model, titanic_csv, tmp_path):
    (tmp_path / "in").mkdir()
    header, *lines = titanic_csv.read_text().splitlines(keepends=True)
    (tmp_path / "in" / "a.csv").write_text("".join([header, *lines[:600], "too,few\n"]))
    (tmp_path / "in" / "b.csv").write_text("".join([header, *lines[600:]]))
    here = by_the_job(titanic_model.export, tmp_path / "here", tmp_path / "in" / "*.csv")
    engine_result = engine(Path(titanic_model.export), tmp_path / "in", "*.csv")
    assert_same(engine_result, result(tmp_path / "here", here))
    assert engine_result[2].read == 1001


def test_images(engine, stripes_model, stripes, tmp_path):
    (tmp_path / "in").mkdir()
    for path in sorted((Path(stripes.path).parent / "raw").glob("*/*"))[:20]:
        shutil.copy(path, tmp_path / "in" / f"{path.parent.name}-{path.name}")
    (tmp_path / "in" / "none.jpg").write_text("no image")
    here = by_the_job(stripes_model.export, tmp_path / "here", tmp_path / "in" / "*")
    engine_result = engine(Path(stripes_model.export), tmp_path / "in", "*")
    assert_same(engine_result, result(tmp_path / "here", here))
    assert engine_result[2].rejected == 1
