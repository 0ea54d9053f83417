"""Small image files: made byte by byte, so that a test can break each field, or drawn and then encoded."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

IMAGES = """\
name: shapes
format: image_folder
images: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}, store: raw}
split: {train: 0.6, eval: 0.4, test: 0}
"""
LISTED_IMAGES = IMAGES.replace("images: {", "images: {listing: csv, root: raw, ")


def png(pixels: np.ndarray, *, color_type: int = 2, palette: bytes = b"", size: tuple[int, int] | None = None) -> bytes:
    """A PNG of uint8 or uint16 `[height, width, channels]`; `size` (height, width) is written to the header."""
    height, width = size or pixels.shape[:2]
    rows = pixels.astype(">u2") if pixels.dtype == np.uint16 else pixels
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8 * pixels.dtype.itemsize, color_type, 0, 0, 0)
    chunks = [
        (b"IHDR", header),
        *([(b"PLTE", palette)] if palette else []),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


# Of formats that are not read.
GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff\x2c\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
BMP = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 58, 0, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0) + bytes(4)


def jpeg_header(
    height: int, width: int, *, coding: int = 0, bits: int = 8, scan: int = 3, before: bytes = b""
) -> bytes:
    """A JPEG up to its first scan's header, without pixels."""
    frame = struct.pack(">HBHHB", 17, bits, height, width, 3) + bytes([1, 17, 0, 2, 17, 0, 3, 17, 0])
    scan_header = struct.pack(">HB", 6 + 2 * scan, scan) + bytes(2 * scan + 3)
    return b"\xff\xd8" + before + b"\xff" + bytes([0xC0 + coding]) + frame + b"\xff\xda" + scan_header


GRADIENT = np.add.outer(7 * np.arange(12), np.array([5, 60, 120]) + 9 * np.arange(16)[:, None]).astype(np.uint8)


def draw(kind: int, seed: int, *, height: int = 40, width: int = 50) -> np.ndarray:
    """uint8 `[height, width, 3]`: a disc (0) or a bar (1) at a random position, on noise."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 60, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.integers(12, height - 12), rng.integers(12, width - 12)
    shape = (y - cy) ** 2 + (x - cx) ** 2 < 80 if kind == 0 else (abs(y - cy) < 3) & (abs(x - cx) < 12)
    image[shape] = [250, 40, 40] if kind == 0 else [40, 250, 40]
    return image.astype(np.uint8)


def write_folders(folder: Path, *, per_class: int) -> None:
    """`per_class` PNG and JPEG files of discs and bars in a folder for each class."""
    import tensorflow as tf

    for kind, name in enumerate(("disc", "bar")):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            image = draw(kind, 1000 * kind + i)
            data = tf.io.encode_png(image) if i % 2 else tf.io.encode_jpeg(image)
            (folder / name / f"{i:03d}.{'png' if i % 3 else 'jpg'}").write_bytes(data.numpy())  # whatever its name is
