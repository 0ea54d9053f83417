"""The drawn sample images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from schemas.images.header import read_header
from schemas.samples.command import image_main as main
from schemas.samples.images import SHAPES, SIDE, draw, png


def test_each_shape_has_its_folder(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--each", "3"]) == 0
    assert {p.name: len(list(p.iterdir())) for p in tmp_path.iterdir()} == dict.fromkeys(SHAPES, 3)


def test_the_files_are_png_of_what_was_drawn() -> None:
    image = draw("disc", np.random.default_rng(0))
    header = read_header(png(image))
    assert (header.format, header.height, header.width) == ("png", SIDE, SIDE)
    assert (tf.io.decode_png(png(image)).numpy() == image).all()


def test_a_seed_draws_the_same_again() -> None:
    first, second, other = (draw("square", np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


def test_nothing_is_drawn_of_no_images(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--each", "0"]) == 2
