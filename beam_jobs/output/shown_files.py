"""Small pictures of some image files, for the report of a run."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping

from schemas import storage
from schemas.errors import MillraceError

SIDE = 120  # pixels of the longest side
PICTURES = 80
PIXELS = 1 << 26  # that are decoded for all of them together, which takes about a second
_READ = 1 << 25  # bytes of a file; a larger one is not shown


def shown_files(paths: Iterable[str]) -> Mapping[str, str]:
    """The first of these files as `data:` URLs by path, within what this module allows.

    A file that is gone, or that Pillow does not read, is left out: the report is complete without it.
    """
    import PIL.Image

    found: dict[str, str] = {}
    left = PIXELS
    for path in paths:
        if len(found) == PICTURES:
            break
        try:
            with storage.open_read(path) as file:
                data = file.read(_READ + 1)
            with PIL.Image.open(io.BytesIO(data if len(data) <= _READ else b"")) as image:
                image.draft("RGB", (2 * SIDE, 2 * SIDE))  # a JPEG is decoded at a scale
                if image.width * image.height > left:
                    continue
                left -= image.width * image.height
                small = image.convert("RGB")
        except (OSError, ValueError, SyntaxError, MillraceError, PIL.Image.DecompressionBombError):
            continue
        small.thumbnail((SIDE, SIDE))
        sink = io.BytesIO()
        small.save(sink, "JPEG", quality=80)
        found[path] = f"data:image/jpeg;base64,{base64.b64encode(sink.getvalue()).decode()}"
    return found
