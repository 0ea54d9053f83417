"""Training, evaluation, export, prediction and serving in a bucket: each flag that names a file takes one there."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from beam_jobs import preprocess
from schemas import storage
from schemas.dataset import open_dataset
from schemas.storage import folders
from tests.support import training
from tests.support.commands import assert_light
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.processes import until
from trainer import predict, verify

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

ROWS = 400


@dataclasses.dataclass(frozen=True)
class Trained:
    """A folder in a bucket: `schema.yaml`, `raw.csv.gz`, `data`, and `model` after 40 steps."""

    path: str

    @property
    def data(self) -> str:
        return f"{self.path}/data"

    @property
    def model(self) -> str:
        return f"{self.path}/model"

    @property
    def export(self) -> str:
        mark = json.loads(storage.read_bytes(f"{self.model}/export/best/best.json"))
        return f"{self.model}/export/best/{mark['export']}"


@pytest.fixture(scope="module")
def trained(running_cloud) -> Trained:
    there = f"{running_cloud.new_bucket()}/some folder"
    storage.write_bytes(f"{there}/schema.yaml", LEAN_SCHEMA.encode())
    storage.write_bytes(f"{there}/raw.csv.gz", gzip.compress((people_csv(ROWS) + "too,few\n").encode()))
    argv = ["--schema", f"{there}/schema.yaml", "--input", f"{there}/*.csv.gz", "--output", f"{there}/data"]
    assert preprocess.main([*argv, "--quiet", "--compression", "gzip"]) == 0
    assert training.run(open_dataset(f"{there}/data"), f"{there}/model", "--quiet") == 0
    return Trained(there)


def test_a_training_leaves_checkpoints_metrics_and_checked_exports(trained) -> None:
    names = storage.listdir(trained.model)
    assert {"checkpoint", "model.ckpt-40.index", "model.json", "evaluations.json", "metrics-eval.json"} <= set(names)
    assert not [name for name in folders.walk(trained.model) if "temp" in name or name.endswith(".tmp")]
    evaluations = json.loads(storage.read_bytes(f"{trained.model}/evaluations.json"))
    assert [evaluation["global_step"] for evaluation in evaluations] == [20, 40]
    argv = ["--saved_model", trained.export, "--data_dir", trained.data, "--model_dir", trained.model]
    assert verify.main(argv) == 0


def test_a_training_resumes_where_it_ended(trained, capsys) -> None:
    assert training.run(open_dataset(trained.data), trained.model, "--quiet", steps=60) == 0
    assert "trained  20 steps" in capsys.readouterr().err
    assert "model.ckpt-60.index" in storage.listdir(trained.model)


def test_a_training_leaves_nothing_in_the_temporary_folder_and_the_next_command_what_a_killed_one_left(
    trained, bucket
) -> None:
    """TensorFlow keeps a copy there of each file that it writes to a bucket, and the code that it generates."""
    argv = ["--data_dir", trained.data, "--model", "dnn", "--batch_size", "64", "--model_dir"]
    train = [sys.executable, "-m", "trainer.task", *argv]
    with tempfile.TemporaryDirectory() as temporary:
        environment = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen([*train, f"{bucket}/killed", "--max_steps", "1000000"], env=environment) as process:
            until(lambda: bool(list(Path(temporary).glob("millrace.*/*"))), "it has made temporary files")
            process.kill()
        assert len(os.listdir(temporary)) == 1
        subprocess.run([*train, f"{bucket}/model", "--max_steps", "4"], env=environment, check=True)
        assert os.listdir(temporary) == []


def test_predictions_and_their_rejects_are_written_to_the_bucket_as_to_local_disk(trained, tmp_path: Path) -> None:
    written = []
    for place in (trained.path, str(tmp_path)):
        files = {"output": f"{place}/p.jsonl", "rejects": f"{place}/r.jsonl"}
        argv = ["--saved_model", trained.export, "--input", f"{trained.path}/raw.csv.gz", "--quiet"]
        argv += [part for name, path in files.items() for part in (f"--{name}", path)]
        assert predict.main(argv) == 0
        assert predict.main(argv) == 2  # they are there
        assert predict.main([*argv, "--overwrite"]) == 0
        written.append([storage.read_bytes(path) for path in files.values()])
    assert written[0] == written[1]
    assert [data.count(b"\n") for data in written[0]] == [ROWS, 1]


@pytest.mark.parametrize(
    ("module", "argv"),
    [("trainer.task", "--model_dir"), ("trainer.evaluate", "--model_dir {0}/model --output")],
)
def test_a_wrong_bucket_is_refused_before_a_heavy_import(cloud, parcels: Path, module: str, argv: str) -> None:
    words = f"--data_dir {{0}}/data {argv} gs://no-such-bucket/model".format(parcels).split()
    assert_light(module, words, code=2, message="error: gs://no-such-bucket/model: no such bucket")
