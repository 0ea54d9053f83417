"""Pillow's part in the candidates that are written in Python: a file -> an RGB image, resized, and its JPEG.

Pillow works outside the interpreter's lock, so that a thread for each core keeps all of them busy.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from benchmarks.measure import BenchmarkTask

SHORTER = 256


def resized(path: Path, downscale: int = 1) -> Image.Image:
    """A file's image with a shorter side of SHORTER.

    A large JPEG is decoded at the smallest scale that is not less than `downscale` times of that.
    """
    with Image.open(path) as image:
        scale = SHORTER / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        image.draft("RGB", (downscale * size[0], downscale * size[1]))
        return image.convert("RGB").resize(size, Image.Resampling.BILINEAR)


def jpeg(path: Path, downscale: int = 1) -> bytes:
    """A file's image, resized and encoded again."""
    out = io.BytesIO()
    resized(path, downscale).save(out, "JPEG", quality=95)
    return out.getvalue()


def files(source: str) -> tuple[list[Path], list[int]]:
    """The files of a folder of class folders, and the number of each one's class."""
    paths = sorted(Path(source).glob("*/*"))
    names = sorted({path.parent.name for path in paths})
    return paths, [names.index(path.parent.name) for path in paths]


def write_nothing(task: BenchmarkTask) -> None:
    """The bare rate of decoding, resizing and encoding by Pillow: no records, and nothing is written."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(jpeg, files(task.source)[0]):
            pass
