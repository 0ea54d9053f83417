"""What an image looks like in 128 bits: a copy of other size, quality or brightness has nearly the same ones."""

from __future__ import annotations

import dataclasses

import numpy as np

SIDE = 9  # cells across, and down
_ROWS = 72  # of pixels that are looked at, about; more take time and change little
_CLEAR = 1.0  # grey levels by which two cells differ whose order a copy keeps
_CLEAR_BITS = 64  # of 128; an image with fewer is so plain that many others look like it


@dataclasses.dataclass(frozen=True)
class Look:
    """A difference hash, as Krawetz describes it ("Kind of like that", 2013), taken in both directions.

    Attributes:
      across: 64 bits: whether the mean brightness of a cell is less than that of the cell on its right.
      down: 64 bits: the same with the cell below.
      clear: whether most of these differences are more than noise. Plain images are not compared by their looks.
    """

    across: int
    down: int
    clear: bool


UNSEEN = Look(0, 0, False)  # of an image whose pixels are not there


def look_of(pixels: np.ndarray) -> Look:
    """The look of uint8 `[height, width, 3]`."""
    pixels = pixels[:: max(1, len(pixels) // _ROWS)]
    height, width = pixels.shape[:2]
    if min(height, width) < SIDE:
        return UNSEEN
    rows, columns = (np.arange(SIDE) * side // SIDE for side in (height, width))
    bands = np.add.reduceat(pixels.reshape(height, -1), rows, axis=0, dtype=np.uint32)
    sums = np.add.reduceat(bands, 3 * columns, axis=1, dtype=np.int64)
    sizes = np.outer(np.diff(rows, append=height), 3 * np.diff(columns, append=width))
    cells = sums / sizes
    steps = np.stack([cells[:-1, 1:] - cells[:-1, :-1], cells[1:, :-1] - cells[:-1, :-1]])
    across, down = np.packbits((steps > 0).reshape(2, -1), axis=1).view(">u8").ravel().tolist()
    return Look(across, down, bool((np.abs(steps) > _CLEAR).sum() >= _CLEAR_BITS))
