"""Every flag of every command that names a file or a folder takes one in a bucket."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from beam_jobs import preprocess
from millrace import load_model
from schemas import storage
from schemas.dataset import command, open_dataset
from tests.support import training
from tests.support.light_commands import assert_light
from tests.support.people import LEAN_SCHEMA, people_csv
from trainer import predict, verify
from trainer.doctor import command as doctor

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

ROWS = 300


@pytest.fixture(scope="module")
def place(running_cloud, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder in a bucket: `schema.yaml`, `raw.csv.gz`, `data`, and `model` after 20 steps."""
    there = f"{running_cloud.new_bucket()}/some folder"
    storage.write_bytes(f"{there}/schema.yaml", LEAN_SCHEMA.encode())
    storage.write_bytes(f"{there}/raw.csv.gz", gzip.compress((people_csv(ROWS) + "too,few\n").encode()))
    argv = ["--schema", f"{there}/schema.yaml", "--input", f"{there}/*.csv.gz", "--output", f"{there}/data"]
    assert preprocess.main([*argv, "--quiet", "--compression", "gzip"]) == 0
    assert training.run(open_dataset(f"{there}/data"), f"{there}/model", "--quiet", steps=20) == 0
    return there


@pytest.fixture
def export(place: str) -> str:
    mark = json.loads(storage.read_bytes(f"{place}/model/export/best/best.json"))
    return f"{place}/model/export/best/{mark['export']}"


def test_a_job_with_another_datasets_transform(place: str, cloud) -> None:
    argv = [
        "--schema",
        f"{place}/schema.yaml",
        "--input",
        f"{place}/raw.csv.gz",
        "--output",
        f"{place}/again",
        "--quiet",
    ]
    assert preprocess.main([*argv, "--transform_from", f"{place}/data"]) == 0
    again, first = open_dataset(f"{place}/again"), open_dataset(f"{place}/data")
    assert again.manifest.transform_from == first.run
    assert again.manifest.written == first.manifest.written == ROWS
    assert command.main(["verify", "--data_dir", f"{place}/again"]) == 0


def test_predict_with_its_output_and_its_rejects(place: str, export: str, cloud) -> None:
    files = {"output": f"{place}/p.jsonl", "rejects": f"{place}/r.jsonl"}
    argv = ["--saved_model", export, "--input", f"{place}/raw.csv.gz", "--quiet"]
    argv += [part for name, path in files.items() for part in (f"--{name}", path)]
    assert predict.main(argv) == 0
    assert len(storage.read_bytes(files["output"]).splitlines()) == ROWS
    assert len(storage.read_bytes(files["rejects"]).splitlines()) == 1
    assert predict.main(argv) == 2  # they are there
    assert predict.main([*argv, "--overwrite"]) == 0


def test_verify_with_the_checkpoints(place: str, export: str, cloud) -> None:
    argv = ["--saved_model", export, "--data_dir", f"{place}/data", "--model_dir", f"{place}/model"]
    assert verify.main(argv) == 0


def test_the_doctor_with_its_figures(place: str, cloud, tmp_path: Path) -> None:
    argv = ["--data_dir", f"{place}/data", "--model", "softmax", "--steps", "3", "--rounds", "3", "--quiet"]
    assert doctor.main([*argv, "--json", f"{place}/figures.json"]) == 0
    figures = json.loads(storage.read_bytes(f"{place}/figures.json"))
    assert doctor.main([*argv, "--json", f"{place}/figures.json"]) == 2  # it is there
    assert doctor.main([*argv, "--cache_dir", str(tmp_path), "--json", f"{place}/cached.json"]) == 0
    assert json.loads(storage.read_bytes(f"{place}/cached.json")).keys() == figures.keys()


def test_a_model_is_served_from_the_bucket(place: str, export: str, cloud) -> None:
    model = load_model(export)
    row = {"id": "k1", "age": 30, "size": 3, "point": [1.0, 2.0, 3.0]}
    predicted = model.predict([row])
    assert predicted["class"][0] in ("no", "yes")


def test_show_of_a_dataset_whose_name_has_a_space(place: str, cloud, capsys) -> None:
    assert command.main(["show", f"{place}/data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ROWS


CSV = Path(__file__).parents[1] / "fixtures" / "v0_1_0" / "csv"


@pytest.mark.parametrize(
    ("module", "argv"),
    [("trainer.task", ["--model_dir"]), ("trainer.evaluate", ["--model_dir", str(CSV / "model"), "--output"])],
)
def test_a_wrong_bucket_is_refused_before_a_heavy_import(cloud, module: str, argv: list[str]) -> None:
    argv = ["--data_dir", str(CSV / "data"), *argv, "gs://no-such-bucket/model"]
    assert_light(module, argv, code=2, message="error: gs://no-such-bucket/model: no such bucket")
