"""Image datasets small enough to learn in seconds, drawn and then written by the job."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from schemas.dataset import Dataset
from tests.support.image_files import png
from tests.support.jobs import written

COLORS = {
    "black": (10, 10, 10),
    "blue": (20, 20, 220),
    "green": (20, 200, 20),
    "orange": (250, 150, 0),
    "red": (220, 20, 20),
    "white": (245, 245, 245),
    "yellow": (240, 240, 20),
}

COLORS_SCHEMA = """\
name: colors
format: image_folder
images: {resize: {exact: [36, 36]}, crop: [32, 32], store: raw}
split: {by: content, train: 0.7, eval: 0.3, test: 0.0}
"""

PATTERNS_SCHEMA = """\
name: patterns
format: image_pairs
images: {resize: {exact: [36, 36]}, crop: [32, 32], store: raw}
pairs:
  train: {identities: 0.75, same: 150, different: 150}
  eval: {identities: 0.25, same: 40, different: 40}
"""


def write_images(folder: Path, schema: str, images: dict[str, list[np.ndarray]]) -> Dataset:
    """Writes PNG files in a folder for each name, and runs the job on them."""
    for name, each in images.items():
        (folder / "raw" / name).mkdir(parents=True)
        for i, pixels in enumerate(each):
            (folder / "raw" / name / f"{i}.png").write_bytes(png(pixels))
    return written(folder, schema, str(folder / "raw" / "*" / "*"), num_shards=2)


def write_colors(folder: Path, *, each: int = 20) -> Dataset:
    """Seven classes: images of one color, with noise."""
    rng = np.random.default_rng(1)
    sheets = {
        name: [(np.array(color) + rng.normal(0, 25, (36, 36, 3))).clip(0, 255).astype(np.uint8) for _ in range(each)]
        for name, color in COLORS.items()
    }
    return write_images(folder, COLORS_SCHEMA, sheets)


def write_patterns(folder: Path, *, identities: int = 32, each: int = 5) -> Dataset:
    """Pairs: each identity is a gray pattern of 6x6 squares, with noise and changing brightness."""
    rng = np.random.default_rng(1)
    patterns = {}
    for i in range(identities):
        pattern = rng.uniform(40, 215, (6, 6)).repeat(6, axis=0).repeat(6, axis=1)[..., None]
        patterns[f"p{i:02d}"] = [
            (pattern * rng.uniform(0.6, 1.2) + rng.normal(0, 15, (36, 36, 3))).clip(0, 255).astype(np.uint8)
            for _ in range(each)
        ]
    return write_images(folder, PATTERNS_SCHEMA, patterns)


STRIPES_SCHEMA = """\
name: stripes
format: image_folder
images: {resize: {shorter: 36}, crop: [32, 32]}
split: {by: content, train: 0.6, eval: 0.2, test: 0.2}
"""


def striped(kind: str, seed: int) -> np.ndarray:
    """uint8 `[40 to 59, 40 to 59, 3]`: stripes of either direction, or a checkerboard, in random colors and widths."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(40, 60, 2)
    rows, columns = np.indices((height, width)) // rng.integers(5, 9)
    along = {"lying": rows, "standing": columns, "checkered": rows + columns}[kind] % 2
    colors = rng.uniform(0, 90, 3), rng.uniform(160, 255, 3)
    pixels = np.where(along[..., None], *colors) + rng.normal(0, 8, (height, width, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def write_stripes(folder: Path, *, each: int = 40) -> Dataset:
    """Three classes, stored as JPEGs of many sizes."""
    kinds = enumerate(("checkered", "lying", "standing"))
    return write_images(folder, STRIPES_SCHEMA, {k: [striped(k, 1000 * n + i) for i in range(each)] for n, k in kinds})
