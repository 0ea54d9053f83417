"""Image datasets that are learnt in seconds, and small inputs of every kind of raw data: real ones where they are."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beam_jobs.core.options import JobOptions
from beam_jobs.runs.job import run_job
from schemas.dataset import OpenDataset, open_dataset
from schemas.samples.images import write_shapes
from schemas.samples.tables import sample_blocks
from tests.conftest import REAL_DATA
from tests.support.datasets import written
from tests.support.image_files import png

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
format: image_folder
images: {resize: {exact: [36, 36]}, crop: [32, 32], store: raw}
split: {by: folder, train: 0.75, eval: 0.25, test: 0}
"""


def write_images(folder: Path, schema: str, images: dict[str, list[np.ndarray]]) -> OpenDataset:
    """Writes PNG files in a folder for each name, and runs the job on them."""
    for name, class_images in images.items():
        (folder / "raw" / name).mkdir(parents=True)
        for i, pixels in enumerate(class_images):
            (folder / "raw" / name / f"{i}.png").write_bytes(png(pixels))
    return written(folder, schema, str(folder / "raw" / "*" / "*"), num_shards=2)


def write_colors(folder: Path, *, per_class: int = 20) -> OpenDataset:
    """Seven classes: images of one color, with noise."""
    rng = np.random.default_rng(1)
    sheets = {
        name: [
            (np.array(color) + rng.normal(0, 25, (36, 36, 3))).clip(0, 255).astype(np.uint8) for _ in range(per_class)
        ]
        for name, color in COLORS.items()
    }
    return write_images(folder, COLORS_SCHEMA, sheets)


def write_patterns(folder: Path, *, identities: int = 32, per_identity: int = 5) -> OpenDataset:
    """Identities to compare: each is a gray pattern of 6x6 squares, with noise and changing brightness."""
    rng = np.random.default_rng(1)
    patterns = {}
    for i in range(identities):
        pattern = rng.uniform(40, 215, (6, 6)).repeat(6, axis=0).repeat(6, axis=1)[..., None]
        patterns[f"p{i:02d}"] = [
            (pattern * rng.uniform(0.6, 1.2) + rng.normal(0, 15, (36, 36, 3))).clip(0, 255).astype(np.uint8)
            for _ in range(per_identity)
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


def write_stripes(folder: Path, *, per_class: int = 40) -> OpenDataset:
    """Three classes, stored as JPEGs of many sizes."""
    kinds = enumerate(("checkered", "lying", "standing"))
    return write_images(
        folder, STRIPES_SCHEMA, {k: [striped(k, 1000 * n + i) for i in range(per_class)] for n, k in kinds}
    )


PHOTOS = """\
name: photos
format: image_folder
images: {resize: {shorter: 40}, crop: [32, 32]}
split: {by: content, train: 0.6, eval: 0.2, test: 0.2}
"""
BROKEN_IMAGE = b"this is no image"


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Raw files in a folder.

    Attributes:
      schema: the schema file, or the name of one that ships.
      pattern: the files, relative to the folder.
      read: how many records there are.
      rejected: how many of them are bad, and for which reasons.
      vocabularies: how many the transform has.
    """

    schema: str
    pattern: str
    read: int
    rejected: dict[str, int]
    vocabularies: int = 0

    def written(self, place: str, output: str, **changes: Any) -> OpenDataset:
        """The dataset of what is in a folder or bucket, by ranges so small that there are several bundles."""
        shape: dict[str, Any] = {"num_shards": 3, "range_mb": 0.1, "max_rejects": 30, "quiet": True}
        run_job(JobOptions(self.schema, (f"{place}/{self.pattern}",), output, **shape, **changes))
        return open_dataset(output)


def real(name: str) -> Path | None:
    """A folder of the real data, if it is there."""
    folder = os.environ.get(REAL_DATA)
    return Path(folder, name) if folder else None


def covertype(folder: Path) -> Inputs:
    """3,000 rows in two files, and three bad ones."""
    source = real("covertype")
    if source is None:
        rows = _lines(b"".join(sample_blocks("covertype", rows=3000, seed=1)), 3000)
    else:
        with gzip.open(source / "covertype_100k.csv.gz", "rb") as file:
            rows = list(itertools.islice(file, 3000))
    (folder / "a.csv").write_bytes(b"".join([*rows[:1000], b"1,2,3\n", b"x" + rows[0], *rows[1000:2000]]))
    (folder / "b.csv").write_bytes(b"".join([*rows[2000:], rows[0].rsplit(b",", 1)[0] + b",8\n"]))
    return Inputs("covertype", "*.csv", 3003, {"too_few_columns": 1, "not_a_number": 1, "label_not_in_values": 1})


def census(folder: Path) -> Inputs:
    """2,000 rows to train and 1,000 to evaluate, with a vocabulary for each of eight features; one bad line."""
    source = real("census")
    if source is None:
        rows = _lines(b"".join(sample_blocks("census", rows=3000, seed=1)), 3001)[1:]
        train, other = rows[:2000], rows[2000:]
    else:
        train = _lines((source / "adult.data").read_bytes(), 2001)[1:]
        other = _lines((source / "adult.test").read_bytes(), 1001)[1:]
    (folder / "adult.data").write_bytes(b"".join(train))
    (folder / "adult.test").write_bytes(b"".join([b"|1x3 Cross validator\n", *other]))
    schema = (Path(__file__).parents[2] / "schemas" / "census.yaml").read_text()
    measured = schema.replace("{name: sex, kind: category, values: [Female, Male]}", "{name: sex, kind: category}")
    assert measured.count("kind: category") - measured.count("values: [") == 8
    (folder / "schema.yaml").write_text(measured)
    return Inputs(str(folder / "schema.yaml"), "adult.*", 3001, {"too_few_columns": 1}, vocabularies=8)


def images(folder: Path) -> Inputs:
    """40 photos or drawings of two classes or three, and one file that is none."""
    source = real("images")
    if source is None:
        write_shapes(str(folder / "raw"), per_shape=13, seed=1)
    else:
        for name in ("cats", "dogs"):
            (folder / "raw" / name).mkdir(parents=True)
            for path in sorted((source / name).iterdir())[:20]:
                shutil.copy(path, folder / "raw" / name)
    names = sorted((folder / "raw").iterdir())
    (names[0] / "broken.jpg").write_bytes(BROKEN_IMAGE)
    (folder / "schema.yaml").write_text(PHOTOS)
    read = sum(len(list(name.iterdir())) for name in names)
    return Inputs(str(folder / "schema.yaml"), "raw/*/*", read, {"not_an_image": 1})


KINDS: dict[str, Callable[[Path], Inputs]] = {
    "covertype": covertype,
    "census": census,
    "images": images,
}


def _lines(data: bytes, count: int) -> list[bytes]:
    """The first lines, each with its end."""
    return data.splitlines(keepends=True)[:count]
