"""Image files: drawn whole by Pillow, then hurt."""

from __future__ import annotations

import io
import random
from pathlib import Path

FORMATS = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp"}


def drawn(draw: random.Random, fmt: str) -> bytes:
    """A smooth picture with a little noise, which survives being stored as a JPEG."""
    from PIL import Image, ImageDraw

    size = (draw.randint(16, 90), draw.randint(16, 90))
    mode = draw.choice(["RGB", "RGB", "L"])
    picture = Image.new("RGB", size, tuple(draw.randrange(256) for _ in range(3)))
    pen = ImageDraw.Draw(picture)
    for _ in range(3):
        x, y = draw.randrange(size[0]), draw.randrange(size[1])
        pen.ellipse((x - 12, y - 12, x + 12, y + 12), fill=tuple(draw.randrange(256) for _ in range(3)))
    out = io.BytesIO()
    options = {"quality": 95} if fmt == "JPEG" else {}
    picture.convert(mode).save(out, fmt, **options)
    return out.getvalue()


def draw_folder(draw: random.Random, folder: Path, *, each: int) -> None:
    """A folder for each of two classes."""
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            fmt = draw.choice(sorted(FORMATS))
            (folder / name / f"{i:04d}.{FORMATS[fmt]}").write_bytes(drawn(draw, fmt))
