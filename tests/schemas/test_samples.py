"""The invented files: the shape of the real ones, the same for the same seed, and something in them to learn."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.samples.command import main
from schemas.samples.images import SHAPES
from schemas.samples.tables import (
    CENSUS_HEADER,
    MNIST_HEADER,
    SAMPLES,
    TITANIC_HEADER,
    covertype_rows,
    mnist_csv_rows,
    sample_blocks,
    write_sample,
)
from tests.support.csv_reading import csv_schema


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def linear_accuracy(x: NDArray[np.float64], label: NDArray[np.int64]) -> float:
    """The accuracy, on the second half, of one least-squares fit to each class of the first half."""
    x = np.concatenate([(x - x.mean(0)) / (x.std(0) + 1e-9), np.ones((len(x), 1))], axis=1)
    classes, target = np.unique(label, return_inverse=True)
    half = len(x) // 2
    weights = np.linalg.lstsq(x[:half], np.eye(len(classes))[target[:half]], rcond=None)[0]
    return float(np.mean((x[half:] @ weights).argmax(axis=1) == target[half:]))


def test_classes_drift_to_lower_places_and_other_soils() -> None:
    before, after = covertype_rows(4000, rng()), covertype_rows(4000, rng(), drift=1.0)
    assert (before[:, 54] == after[:, 54]).all()
    assert before[:, 0].mean() - after[:, 0].mean() == pytest.approx(230, abs=5)
    assert (after[:, 14:54].sum(axis=1) == 1).all()
    soils = [np.bincount(rows[rows[:, 54] == 1, 14:54].argmax(axis=1)).argmax() for rows in (before, after)]
    assert soils[1] - soils[0] == 6
    half = covertype_rows(4000, rng(), drift=0.5)
    assert before[:, 0].mean() > half[:, 0].mean() > after[:, 0].mean()


@pytest.mark.parametrize("make", [covertype_rows, pytest.param(mnist_csv_rows, marks=pytest.mark.slow)])
def test_the_label_depends_on_the_features(make: object) -> None:
    rows = covertype_rows(4000, rng()) if make is covertype_rows else mnist_csv_rows(4000, rng())
    x, label = (rows[:, :54], rows[:, 54]) if make is covertype_rows else (rows[:, 1:], rows[:, 0])
    most_frequent = np.bincount(label).max() / len(label)
    assert linear_accuracy(x.astype(float), label) > most_frequent + 0.15


@pytest.mark.parametrize(
    ("name", "header"),
    [("covertype", ""), ("census", CENSUS_HEADER), ("mnist_csv", MNIST_HEADER), ("titanic", TITANIC_HEADER)],
)
def test_a_written_sample_reads_back_as_rows_of_one_width(name: str, header: str, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "sample.csv"
    write_sample(name, str(path), rows=20, seed=1)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert (rows[0] == header.split(",")) == bool(header)
    assert len(rows) == 20 + bool(header)
    assert len({len(row) for row in rows}) == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_sample_has_the_columns_that_its_schema_reads(name: str) -> None:
    schema = csv_schema(name)
    first = next(sample_blocks(name, rows=1, seed=1)).decode().strip().split(",")
    refs = [ref for item in (*schema.features, schema.label) for ref in item.refs]
    assert set(refs) == (set(first) if SAMPLES[name][0] else set(range(len(first))))


def test_the_command_reports_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.csv"
    assert main(["covertype", str(path), "--rows", "1000", "--seed", "3"]) == 0
    assert capsys.readouterr().out == f"{path}: 1,000 synthetic rows in the format of covertype (seed 3)\n"
    assert path.read_bytes() == b"".join(sample_blocks("covertype", rows=1000, seed=3))


def test_a_sample_is_replaced_only_with_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.csv"
    path.write_text("mine")
    assert main(["covertype", str(path), "--rows", "10"]) == 2
    assert f"{path}: already exists; give --overwrite to replace it" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main(["covertype", str(path), "--rows", "10", "--overwrite"]) == 0
    assert path.read_bytes() == b"".join(sample_blocks("covertype", rows=10, seed=1))


def test_drawn_images_are_replaced_only_with_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes", str(tmp_path), "--each", "3"]) == 0
    (tmp_path / "disc" / "mine.png").write_bytes(b"")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    again = ["shapes", str(tmp_path), "--each", "2", "--seed", "2"]
    assert main(again) == 2
    assert f"{tmp_path}: holds drawn images already; give --overwrite" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == before
    assert main([*again, "--overwrite"]) == 0
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert left == {"disc/mine.png", *(f"{shape}/0000{i}.png" for shape in SHAPES for i in range(2))}
    assert (tmp_path / "disc/00000.png").read_bytes() != before[tmp_path / "disc/00000.png"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["drawn", "--each", "0"], "--each must be 1 or more"),
        (["gs://bucket/shapes"], "gs://bucket/shapes: "),
        (["ftp://host/shapes"], "ftp://host/shapes: "),
        (["linked"], "linked: is not a folder"),
    ],
)
def test_images_are_drawn_into_local_folders_only(argv: list[str], message: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to("/dev/null")
    assert main(["shapes", *argv]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["linked"]
