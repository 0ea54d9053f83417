"""The drawn sample images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from schemas.images.header import read_header
from schemas.samples.command import image_main as main
from schemas.samples.images import SHAPES, SIDE, draw, png


def test_each_shape_has_its_folder(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--each", "3"]) == 0
    assert {p.name: len(list(p.iterdir())) for p in tmp_path.iterdir()} == dict.fromkeys(SHAPES, 3)


def test_drawn_images_are_replaced_only_with_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--each", "3"]) == 0
    (tmp_path / "disc" / "mine.png").write_bytes(b"")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    again = [str(tmp_path), "--each", "2", "--seed", "2"]
    assert main(again) == 2
    assert f"{tmp_path}: holds drawn images already; give --overwrite" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == before
    assert main([*again, "--overwrite"]) == 0
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert left == {"disc/mine.png", *(f"{shape}/0000{i}.png" for shape in SHAPES for i in range(2))}
    assert (tmp_path / "disc/00000.png").read_bytes() != before[tmp_path / "disc/00000.png"]


def test_the_files_are_png_of_what_was_drawn() -> None:
    image = draw("disc", np.random.default_rng(0))
    header = read_header(png(image))
    assert (header.format, header.height, header.width) == ("png", SIDE, SIDE)
    assert (tf.io.decode_png(png(image)).numpy() == image).all()


def test_a_seed_draws_the_same_again() -> None:
    first, second, other = (draw("square", np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["shapes", "--each", "0"], "--each must be 1 or more"),
        (["gs://bucket/shapes"], "gs://bucket/shapes: "),
        (["ftp://host/shapes"], "ftp://host/shapes: "),
        (["linked"], "linked: is not a folder"),
    ],
)
def test_images_are_drawn_into_local_folders_only(
    given: list[str], message: str, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to("/dev/null")
    assert main(given) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["linked"]
