"""Images in a bucket: the same datasets as on local disk, and a training on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas import storage
from schemas.dataset import OpenDataset
from schemas.storage import folders
from tests.support import datasets, training
from tests.support.datasets import assert_same
from tests.support.drawn_datasets import COLORS_SCHEMA
from tests.support.image_files import write_folders
from trainer import predict


def preprocess(folder: Path, schema: str, raw: str, output: str) -> OpenDataset:
    return datasets.written(folder, schema, f"{raw}/*/*", output=output, num_shards=2, max_rejects=20)


@pytest.fixture
def raw(tmp_path: Path) -> str:
    """Folders of discs and bars, one file of which is empty."""
    write_folders(tmp_path / "raw", per_class=12)
    (tmp_path / "raw" / "disc" / "empty.jpg").write_bytes(b"")
    return str(tmp_path / "raw")


def test_images_in_a_bucket_make_the_records_that_they_make_on_local_disk(tmp_path, bucket, raw) -> None:
    folders.copy(raw, f"{bucket}/raw")
    storage.write_bytes(f"{bucket}/raw/bar/", b"")  # a folder, as TensorFlow and the Cloud console make it
    here = preprocess(tmp_path, COLORS_SCHEMA, raw, str(tmp_path / "out"))
    there = preprocess(tmp_path, COLORS_SCHEMA, f"{bucket}/raw", f"{bucket}/out")
    assert_same(there, here)
    assert there.manifest.rejected == 1


def test_a_model_of_images_trains_exports_and_predicts_in_a_bucket(tmp_path, bucket, raw) -> None:
    folders.copy(raw, f"{bucket}/raw")
    dataset = preprocess(tmp_path, COLORS_SCHEMA, f"{bucket}/raw", f"{bucket}/out")
    assert training.run(dataset, f"{bucket}/model", "--quiet", model="softmax", steps=20) == 0
    best = f"{bucket}/model/export/best"
    export = f"{best}/{json.loads(storage.read_bytes(f'{best}/best.json'))['export']}"
    argv = ["--saved_model", export, "--input", f"{bucket}/raw/*/*", "--output", f"{bucket}/p.jsonl", "--quiet"]
    assert predict.main(argv) == 0
    assert len(storage.read_bytes(f"{bucket}/p.jsonl").splitlines()) == 24
