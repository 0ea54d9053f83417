"""Images and pairs of images in a bucket: the same datasets as on local disk, and a training on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.runtime.job import run_job
from schemas import storage
from schemas.dataset import Dataset, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.storage import folders
from tests.support import training
from tests.support.drawn_datasets import COLORS_SCHEMA, PATTERNS_SCHEMA, striped, write_images
from tests.support.drawn_images import write_folders
from tests.support.written_records import records
from trainer import predict

PAIRS = PATTERNS_SCHEMA.replace("same: 150, different: 150", "same: 20, different: 20").replace("40", "10")


def preprocess(folder: Path, schema: str, raw: str, output: str) -> Dataset:
    (folder / "schema.yaml").write_text(schema)
    run_job(JobOptions(str(folder / "schema.yaml"), (f"{raw}/*/*",), output, num_shards=2, quiet=True, max_rejects=20))
    return open_dataset(output)


@pytest.fixture(scope="module")
def raw(running_cloud, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folders of discs and bars, one file of which is empty, on local disk and in a bucket."""
    here, there = tmp_path_factory.mktemp("raw") / "shapes", f"{running_cloud.new_bucket()}/shapes"
    write_folders(here, each=12)
    (here / "disc" / "empty.jpg").write_bytes(b"")
    folders.copy(str(here), there)
    storage.write_bytes(f"{there}/bar/", b"")  # a folder, as TensorFlow and the Cloud console make it
    return str(here), there


def assert_same(there: Dataset, here: Dataset) -> None:
    assert there.splits == here.splits
    for split in here.splits:
        assert records(there, split) == records(here, split)
    assert there.manifest.rejected == here.manifest.rejected
    assert verify_dataset(there.path) == []


def test_images_in_a_bucket_make_the_records_that_they_make_on_local_disk(tmp_path, bucket, raw) -> None:
    here = preprocess(tmp_path, COLORS_SCHEMA, raw[0], str(tmp_path / "out"))
    there = preprocess(tmp_path, COLORS_SCHEMA, raw[1], f"{bucket}/out")
    assert_same(there, here)
    assert there.manifest.rejected == 1


def test_pairs_in_a_bucket_make_the_records_that_they_make_on_local_disk(tmp_path, bucket) -> None:
    people = {f"p{i}": [striped("lying", 10 * i + k) for k in range(5)] for i in range(8)}
    here = write_images(tmp_path, PAIRS, people)
    folders.copy(str(tmp_path / "raw"), f"{bucket}/raw")
    assert_same(preprocess(tmp_path, PAIRS, f"{bucket}/raw", f"{bucket}/out"), here)


def test_a_model_of_images_trains_exports_and_predicts_in_a_bucket(tmp_path, bucket, raw) -> None:
    dataset = preprocess(tmp_path, COLORS_SCHEMA, raw[1], f"{bucket}/out")
    assert training.run(dataset, f"{bucket}/model", "--quiet", model="softmax", steps=20) == 0
    best = f"{bucket}/model/export/best"
    export = f"{best}/{json.loads(storage.read_bytes(f'{best}/best.json'))['export']}"
    argv = ["--saved_model", export, "--input", f"{raw[1]}/*/*", "--output", f"{bucket}/p.jsonl", "--quiet"]
    assert predict.main(argv) == 0
    assert len(storage.read_bytes(f"{bucket}/p.jsonl").splitlines()) == 24
