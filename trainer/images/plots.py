"""Pictures for summaries, drawn by hand: a confusion matrix, a ROC curve, and any pixels as a PNG."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIDE = 256  # pixels, of the ROC's square
_MARGIN = 8
_BLUE, _GRAY, _LIGHT = (20, 80, 180), (90, 90, 90), (200, 200, 200)


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 `[height, width, 3]`."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def confusion_image(counts: np.ndarray) -> np.ndarray:
    """A square for each pair of classes, the darker the more of the row's class were taken for the column's.

    Args:
      counts: `[classes, classes]`: true class, predicted class.

    Returns:
      uint8 `[side, side, 3]`, the squares 1 to 32 pixels wide.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    white = np.full(3, 255.0)
    colors = white + shares[..., None] * (np.array(_BLUE) - white)
    cell = max(1, min(32, 512 // len(counts)))
    image = colors.repeat(cell, axis=0).repeat(cell, axis=1).round().astype(np.uint8)
    if cell >= 8:  # lines between the squares
        image[::cell] = image[:, ::cell] = _LIGHT
    return image


def roc_image(false_positives: np.ndarray, true_positives: np.ndarray) -> np.ndarray:
    """The curve through points with coordinates from 0 to 1, in a frame, with the diagonal that chance would give.

    Args:
      false_positives: rates, rising, `[points]`: to the right.
      true_positives: rates, rising, `[points]`: upwards.

    Returns:
      uint8 `[SIDE, SIDE, 3]`.
    """
    image = np.full((SIDE, SIDE, 3), 255, np.uint8)
    low, high = _MARGIN, SIDE - 1 - _MARGIN
    image[[low, high], low : high + 1] = image[low : high + 1, [low, high]] = _GRAY
    _line(image, np.array([0.0, 1.0]), np.array([0.0, 1.0]), _LIGHT)
    _line(image, false_positives, true_positives, _BLUE)
    return image


def _line(image: np.ndarray, x: np.ndarray, y: np.ndarray, color: tuple[int, int, int]) -> None:
    """Draws a line through points with coordinates from 0 to 1."""
    steps = 2 * SIDE  # of each piece: enough to leave no gap
    t = np.linspace(0.0, 1.0, steps)
    span = SIDE - 1 - 2 * _MARGIN
    columns = _MARGIN + span * (x[:-1, None] * (1 - t) + x[1:, None] * t)
    rows = SIDE - 1 - _MARGIN - span * (y[:-1, None] * (1 - t) + y[1:, None] * t)
    image[rows.round().astype(int), columns.round().astype(int)] = color
