"""Image files for tests: drawn, and damaged on purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

IMAGES = """\
name: shapes
format: image_folder
images: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}, store: raw}
split: {train: 0.6, eval: 0.4, test: 0}
"""
LISTED_IMAGES = IMAGES.replace("images: {", "images: {listing: csv, root: raw, ")


def draw(kind: int, seed: int, *, height: int = 40, width: int = 50) -> np.ndarray:
    """uint8 `[height, width, 3]`: a disc (0) or a bar (1) at a random position, on noise."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 60, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.integers(12, height - 12), rng.integers(12, width - 12)
    shape = (y - cy) ** 2 + (x - cx) ** 2 < 80 if kind == 0 else (abs(y - cy) < 3) & (abs(x - cx) < 12)
    image[shape] = [250, 40, 40] if kind == 0 else [40, 250, 40]
    return image.astype(np.uint8)


def write_folders(folder: Path, *, each: int) -> None:
    """`each` PNG and JPEG files of discs and bars in a folder for each class."""
    for kind, name in enumerate(("disc", "bar")):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            image = draw(kind, 1000 * kind + i)
            data = tf.io.encode_png(image) if i % 2 else tf.io.encode_jpeg(image)
            (folder / name / f"{i:03d}.{'png' if i % 3 else 'jpg'}").write_bytes(data.numpy())  # whatever its name is
