"""Training, evaluation, export and prediction with everything in a bucket."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.runtime.job import run_job
from schemas import storage
from schemas.dataset import open_dataset
from schemas.storage import folders
from tests.support import training
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.waiting import until
from trainer import predict, verify


@dataclasses.dataclass(frozen=True)
class Trained:
    """A folder in a bucket: `raw.csv`, `data`, and `model` after 40 steps."""

    path: str

    @property
    def export(self) -> str:
        mark = json.loads(storage.read_bytes(f"{self.path}/model/export/best/best.json"))
        return f"{self.path}/model/export/best/{mark['export']}"


@pytest.fixture(scope="module")
def trained(running_cloud, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder, bucket = tmp_path_factory.mktemp("training"), running_cloud.new_bucket()
    (folder / "schema.yaml").write_text(LEAN_SCHEMA)
    storage.write_bytes(f"{bucket}/raw.csv", people_csv(400).encode())
    run_job(JobOptions(str(folder / "schema.yaml"), (f"{bucket}/raw.csv",), f"{bucket}/data", quiet=True))
    assert training.run(open_dataset(f"{bucket}/data"), f"{bucket}/model", "--quiet") == 0
    return Trained(bucket)


def test_a_training_leaves_checkpoints_metrics_and_checked_exports(trained) -> None:
    model = f"{trained.path}/model"
    names = storage.listdir(model)
    assert {"checkpoint", "model.ckpt-40.index", "model.json", "evaluations.json", "metrics-eval.json"} <= set(names)
    assert not [name for name in folders.walk(model) if "temp" in name or name.endswith(".tmp")]
    steps = [evaluation["global_step"] for evaluation in json.loads(storage.read_bytes(f"{model}/evaluations.json"))]
    assert steps == [20, 40]
    assert verify.main(["--saved_model", trained.export, "--data_dir", f"{trained.path}/data"]) == 0


def test_a_training_resumes_where_it_ended(trained, capsys) -> None:
    dataset = open_dataset(f"{trained.path}/data")
    assert training.run(dataset, f"{trained.path}/model", "--quiet", steps=60) == 0
    assert "trained  20 steps" in capsys.readouterr().err
    assert "model.ckpt-60.index" in storage.listdir(f"{trained.path}/model")


def test_a_training_leaves_nothing_in_the_temporary_folder_and_the_next_command_what_a_killed_one_left(
    trained, bucket
) -> None:
    """TensorFlow keeps a copy there of each file that it writes to a bucket, and the code that it generates."""
    argv = ["--data_dir", f"{trained.path}/data", "--model", "dnn", "--batch_size", "64", "--model_dir"]
    train = [sys.executable, "-m", "trainer.task", *argv]
    with tempfile.TemporaryDirectory() as temporary:
        environment = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen([*train, f"{bucket}/killed", "--max_steps", "1000000"], env=environment) as process:
            until(lambda: bool(list(Path(temporary).glob("millrace.*/*"))), "it has made temporary files")
            process.kill()
        assert len(os.listdir(temporary)) == 1
        subprocess.run([*train, f"{bucket}/model", "--max_steps", "4"], env=environment, check=True)
        assert os.listdir(temporary) == []


def test_predictions_are_written_to_the_bucket_as_to_local_disk(trained, tmp_path: Path) -> None:
    argv = ["--saved_model", trained.export, "--input", f"{trained.path}/raw.csv", "--quiet"]
    assert predict.main([*argv, "--output", f"{trained.path}/predictions.jsonl"]) == 0
    assert predict.main([*argv, "--output", str(tmp_path / "predictions.jsonl")]) == 0
    written = storage.read_bytes(f"{trained.path}/predictions.jsonl")
    assert len(written.splitlines()) == 400
    assert written == (tmp_path / "predictions.jsonl").read_bytes()
