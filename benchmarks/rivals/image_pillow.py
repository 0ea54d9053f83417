"""Pillow's part in the rivals that are written in Python: a file -> an RGB image, resized."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

SHORTER = 256


def resized(path: Path) -> Image.Image:
    """A file's image with a shorter side of SHORTER."""
    with Image.open(path) as image:
        scale = SHORTER / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        return image.convert("RGB").resize(size, Image.Resampling.BILINEAR)


def files(source: str) -> tuple[list[Path], list[int]]:
    """The files of a folder of class folders, and the number of each one's class."""
    paths = sorted(Path(source).glob("*/*"))
    names = sorted({path.parent.name for path in paths})
    return paths, [names.index(path.parent.name) for path in paths]
