"""The invented files: the shape of the real ones, the same for the same seed, and something in them to learn."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas import storage
from schemas.samples.command import main
from schemas.samples.images import SHAPES
from schemas.samples.tables import (
    CENSUS_HEADER,
    MNIST_HEADER,
    SAMPLES,
    TITANIC_HEADER,
    census_rows,
    covertype_rows,
    mnist_csv_rows,
    sample_blocks,
    titanic_rows,
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


def test_covertype_has_the_real_files_shape() -> None:
    rows = covertype_rows(5000, rng())
    assert rows.shape == (5000, 55)
    assert (rows[:, 10:14].sum(axis=1) == 1).all()
    assert (rows[:, 14:54].sum(axis=1) == 1).all()
    assert np.isin(rows[:, 10:54], (0, 1)).all()
    assert set(rows[:, 54].tolist()) == set(range(1, 8))
    assert rows[:, 0].min() >= 1859
    assert rows[:, 0].max() <= 3858


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


def test_census_rows_fit_the_header_and_hold_both_labels_and_missing_values() -> None:
    rows = census_rows(2000, rng())
    assert {len(row) for row in rows} == {len(CENSUS_HEADER.split(","))}
    assert {row[-1] for row in rows} == {"<=50K", ">50K"}
    assert {i for row in rows for i, cell in enumerate(row) if cell == "?"} == {1, 6, 13}
    married = np.array([row[5] == "Married-civ-spouse" for row in rows])
    rich = np.array([row[-1] == ">50K" for row in rows])
    assert rich[married].mean() > rich[~married].mean() + 0.2


def test_titanic_rows_hold_commas_quotes_and_missing_values() -> None:
    rows = titanic_rows(300, rng())
    assert {len(row) for row in rows} == {len(TITANIC_HEADER.split(","))}
    assert all("," in row[2] and '"' in row[2] for row in rows)
    assert {i for row in rows for i, cell in enumerate(row) if cell == "?"} >= {4, 9, 11, 12, 13}
    assert all((row[11] == "?") == (row[1] == "0") for row in rows)


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


def test_the_seed_decides_the_rows() -> None:
    first, again, other = (b"".join(sample_blocks("covertype", rows=50, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


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


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["census", str(tmp_path / "file" / "x.csv")]) == 2
    assert "file is not a writable folder (Not a directory)" in capsys.readouterr().err


def test_a_sample_is_written_into_a_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["covertype", f"{bucket}/raw/x.csv", "--rows", "10", "--seed", "3"]
    assert main(command) == 0
    written = storage.read_bytes(f"{bucket}/raw/x.csv")
    assert written == b"".join(sample_blocks("covertype", rows=10, seed=3))
    assert main(command) == 2
    assert main([*command[:2], "--rows", "20", "--overwrite"]) == 0
    assert storage.listdir(f"{bucket}/raw") == ["x.csv"]
    assert list(tmp_path.iterdir()) == []  # no folder `gs:`


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
