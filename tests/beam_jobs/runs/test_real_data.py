"""The shipped schemas on the real files: every row accounted for."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from tests.support.datasets import Folder
from tests.support.written_records import examples

pytestmark = pytest.mark.long

SCHEMAS = Path(__file__).parents[3] / "schemas"


def run(schema: str, inputs: list[Path], folder: Path) -> OpenDataset:
    return Folder(folder).run(schema=str(SCHEMAS / schema), input=tuple(map(str, inputs)), range_mb=1)


@pytest.fixture(scope="module")
def census(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> OpenDataset:
    files = [real_data / "census" / name for name in ("adult.data", "adult.test")]
    return run("census.yaml", files, tmp_path_factory.mktemp("census"))


@pytest.mark.parametrize(
    ("schema", "file", "rows"),
    [
        ("covertype.yaml", "covertype/covertype_100k.csv.gz", 100_000),
        ("mnist_csv.yaml", "mnist/mnist_10k.csv.gz", 10_000),
        ("titanic.yaml", "titanic/titanic.csv", 1_309),
    ],
)
def test_every_row_is_written(real_data: Path, tmp_path: Path, schema: str, file: str, rows: int) -> None:
    assert_every_row_is_written(run(schema, [real_data / file], tmp_path), rows)


def test_every_row_of_two_files_is_written(census: OpenDataset) -> None:
    assert_every_row_is_written(census, 32_561 + 16_281)


def assert_every_row_is_written(dataset: OpenDataset, rows: int) -> None:
    manifest = dataset.manifest
    assert (manifest.read, manifest.written, manifest.rejected) == (rows, rows, 0)
    stored = {s: sum(1 for _ in tf.data.TFRecordDataset(list(dataset.shards(s)))) for s in dataset.splits}
    assert stored == {s: dataset.rows(s) for s in dataset.splits}
    assert sum(stored.values()) == rows


def test_covertype_comes_out_with_the_values_of_the_file(real_data: Path, tmp_path: Path) -> None:
    with gzip.open(real_data / "covertype" / "covertype_100k.csv.gz", "rt") as file:
        rows = np.array(list(csv.reader(file)), np.int64)[:5000]
    np.savetxt(tmp_path / "rows.csv", rows, fmt="%d", delimiter=",")
    dataset = run("covertype.yaml", [tmp_path / "rows.csv"], tmp_path)
    stored = [e for s in dataset.splits for e in examples(dataset, s)]

    def ids(name: str) -> np.ndarray:
        return np.bincount([e[name][0] for e in stored], minlength=40)

    assert (ids("cover_type")[:7] == np.bincount(rows[:, 54], minlength=8)[1:]).all()
    assert (ids("soil_type") == rows[:, 14:54].sum(axis=0)).all()
    assert (ids("wilderness_area")[:4] == rows[:, 10:14].sum(axis=0)).all()
    train = np.array([e["terrain"] for e in examples(dataset, "train")])
    assert np.abs(train.mean(axis=0)).max() < 1e-3
    assert np.abs(train.std(axis=0) - 1).max() < 1e-3


def test_census_trains_on_one_file_and_evaluates_on_the_other(census: OpenDataset) -> None:
    dataset = census
    assert {s: dataset.rows(s) for s in dataset.splits} == {"train": 32_561, "eval": 16_281}
    assert np.bincount([e["income"][0] for e in examples(dataset, "eval")]).tolist() == [12_435, 3_846]
    assert b"<unknown>" in tft.TFTransformOutput(dataset.run_dir).vocabulary_by_name("workclass")
