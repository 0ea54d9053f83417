"""The statistics of the pixels of images, from each image's own sums: exact, in integers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

NAMES = ("red", "green", "blue")


@dataclasses.dataclass
class Channels:
    """The pixels of the stored images of a split.

    Attributes:
      pixels: how many there are.
      sums, squares: of each channel's values, 0 to 255, and of their squares.
    """

    pixels: int = 0
    sums: tuple[int, ...] = (0, 0, 0)
    squares: tuple[int, ...] = (0, 0, 0)

    def add(self, pixels: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> None:
        """Adds images: int64 `[n]`, `[n, 3]` and `[n, 3]`."""
        self.merge(Channels(int(pixels.sum()), tuple(sums.sum(0).tolist()), tuple(squares.sum(0).tolist())))

    def merge(self, other: Channels) -> None:
        """Adds the other one's pixels."""
        self.pixels += other.pixels
        self.sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        self.squares = tuple(a + b for a, b in zip(self.squares, other.squares, strict=True))

    def describe(self) -> dict[str, Any]:
        """Mean and standard deviation of each channel over all pixels, from 0 to 255; empty without pixels."""
        if not self.pixels:
            return {}
        told = {}
        for name, total, squares in zip(NAMES, self.sums, self.squares, strict=True):
            variance = (squares * self.pixels - total * total) / (self.pixels * self.pixels)  # exact up to the division
            told[name] = {"mean": total / self.pixels, "std": math.sqrt(variance)}
        return told
