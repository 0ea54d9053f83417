"""Photos of many megapixels, composed of small ones, so that they have as much detail per pixel as a camera's."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

DISTINCT = 24  # are composed; the others are copies, each with its own comment


def write_mosaics(folder: Path, images: Sequence[Path], *, count: int, sides: tuple[int, int]) -> None:
    """Writes JPEGs of the given height and width into two class folders."""
    draw = random.Random(1)
    distinct = [_mosaic(images, sides, draw) for _ in range(min(DISTINCT, count))]
    for i in range(count):
        path = folder / "ab"[i % 2] / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        jpeg, comment = distinct[i % len(distinct)], str(i).encode()
        # A comment after the first marker, so that no two files have the same bytes
        path.write_bytes(jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:])


def _mosaic(images: Sequence[Path], sides: tuple[int, int], draw: random.Random) -> bytes:
    height, width = sides
    picture = Image.new("RGB", (width, height))
    top = 0
    while top < height:
        left, row = 0, height
        while left < width:
            with Image.open(draw.choice(images)) as tile:
                picture.paste(tile.convert("RGB"), (left, top))
                left, row = left + tile.width, min(row, tile.height)
        top += row
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=92)
    return out.getvalue()
