"""Makes small pictures that stand in a page."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.spec import images

if TYPE_CHECKING:
    import PIL.Image

SIDE = 120  # pixels of the longest side


def opened(data: bytes) -> PIL.Image.Image:
    """Opens an image file, a JPEG at a scale. Raises what Pillow raises, such as OSError."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data))
    image.draft("RGB", (2 * SIDE, 2 * SIDE))
    return image


def thumbnail(image: PIL.Image.Image) -> str:
    """Makes a `data:` URL of an image, as a JPEG of at most `SIDE` pixels."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    sink = io.BytesIO()
    small.save(sink, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(sink.getvalue()).decode()}"


def thumbnails(values: Mapping[str, Sequence[Any]]) -> list[str]:
    """Returns the `data:` URL of a stored record's image, from its values by feature; none if it cannot be decoded."""
    import PIL.Image

    with contextlib.suppress(OSError, ValueError, SyntaxError, KeyError, PIL.Image.DecompressionBombError):
        data = values[images.ENCODED][0]
        if values[images.FORMAT][0] == images.FORMATS["raw"]:
            size = values[images.WIDTH][0], values[images.HEIGHT][0]
            return [thumbnail(PIL.Image.frombytes("RGB", size, data))]
        with opened(data) as image:
            return [thumbnail(image)]
    return []
