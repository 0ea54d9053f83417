"""Draws synthetic sample images: discs, squares and triangles, in one folder for each class.

    python -m schemas.samples shapes shapes/ --each 150 --seed 1

Position, size, colour and background are random, so only the shape determines the class.
"""

from __future__ import annotations

import glob
import os
import struct
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SIDE = 80  # pixels

Mask = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]

# For each shape, a function that tells whether the point (y, x) is in it. The shape's centre is (0, 0), and its radius
# about 1.
SHAPES: dict[str, Mask] = {
    "disc": lambda y, x: y**2 + x**2 < 1,
    "square": lambda y, x: (abs(y) < 0.85) & (abs(x) < 0.85),
    "triangle": lambda y, x: (y < 0.8) & (y > 2 * abs(x) - 0.95),
}


def draw(shape: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draws an image of a shape, at a random place, size and colour: uint8 `[SIDE, SIDE, 3]`."""
    radius = rng.uniform(0.34, 0.46) * SIDE
    center = rng.uniform(radius, SIDE - radius, 2)
    # The coordinates of each pixel in units of the radius, seen from the centre.
    y, x = (np.mgrid[:SIDE, :SIDE] - center[:, None, None]) / radius
    background, color = rng.integers(0, 256, (2, 3))
    # Draw another colour until it differs clearly from the background.
    while abs(background - color).sum() < 200:
        color = rng.integers(0, 256, 3)
    image = np.where(SHAPES[shape](y, x)[..., None], color, background) + rng.normal(0, 4, (SIDE, SIDE, 3))
    return image.clip(0, 255).astype(np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    """Encodes an image as a PNG file (https://www.w3.org/TR/png-3/), without filters.

    Args:
      image: uint8 `[height, width, 3]`.
    """
    height, width, _ = image.shape
    # Each row begins with the number of its filter; 0 means that the row is not filtered.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(rows.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def drawn(folder: str) -> list[str]:
    """Returns the images in a folder that `write_shapes` wrote, recognized by their names."""
    name = f"{'[0-9]' * 5}.png"
    return [path for shape in SHAPES for path in glob.glob(os.path.join(glob.escape(folder), shape, name))]


def write_shapes(folder: str, *, per_shape: int, seed: int) -> int:
    """Writes `per_shape` images of every shape, as `folder/<shape>/<number>.png`. Returns the number of images."""
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        os.makedirs(os.path.join(folder, shape), exist_ok=True)
        for i in range(per_shape):
            with open(os.path.join(folder, shape, f"{i:05d}.png"), "wb") as file:
                file.write(png(draw(shape, rng)))
    return per_shape * len(SHAPES)
