"""Stored images side by side in one PNG, each with its class below it. Drawn by Pillow."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schemas.dataset.opening import Dataset
from schemas.dataset.records import Image, Records
from schemas.spec import image_keys as keys
from schemas.spec.images import SAMENESS, ImageSchema

if TYPE_CHECKING:
    import PIL.Image

SIDE = 160  # pixels of the longest side of an image
_GAP, _LINE = 8, 18  # pixels around an image, and of a line of text
_ACROSS = 8  # images


def contact_sheet(records: Records, dataset: Dataset) -> bytes:
    """A PNG of the records' images: up to eight across, the larger ones scaled down to 160 pixels.

    Args:
      records: of a dataset of images or pairs, at least one.
      dataset: whose classes name them.
    """
    import PIL.Image
    from PIL import ImageDraw, ImageFont

    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has images
    pictures = [_side_by_side([_decoded(record[name]) for name in schema.image_names]) for record in records]
    captions = [_caption(record, schema, dataset.manifest.classes) for record in records]
    width = max(picture.width for picture in pictures)
    height = max(picture.height for picture in pictures)
    font = ImageFont.load_default(12)
    across = min(len(pictures), max(1, _ACROSS // len(schema.image_names)), math.ceil(math.sqrt(2 * len(pictures))))
    cell = (max(width, 72) + _GAP, height + _LINE + _GAP)
    sheet = PIL.Image.new("RGB", (across * cell[0] + _GAP, math.ceil(len(pictures) / across) * cell[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left, top = _GAP + i % across * cell[0], _GAP + i // across * cell[1]
        sheet.paste(picture, (left, top + height - picture.height))
        fits = next(
            (n for n in range(len(caption), 0, -1) if draw.textlength(caption[:n], font=font) <= cell[0] - 2), 0
        )
        draw.text((left, top + height + 2), caption[:fits], fill="black", font=font)
    data = io.BytesIO()
    sheet.save(data, "PNG")
    return data.getvalue()


def _decoded(image: Image) -> PIL.Image.Image:
    import PIL.Image

    if image.format == "RAW":
        picture = PIL.Image.frombytes("RGB", (image.width, image.height), image.data)
    else:
        picture = PIL.Image.open(io.BytesIO(image.data)).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    return picture


def _side_by_side(pictures: Sequence[PIL.Image.Image]) -> PIL.Image.Image:
    import PIL.Image

    if len(pictures) == 1:
        return pictures[0]
    joined = PIL.Image.new("RGB", (sum(p.width for p in pictures), max(p.height for p in pictures)), "white")
    left = 0
    for picture in pictures:
        joined.paste(picture, (left, 0))
        left += picture.width
    return joined


def _caption(record: dict[str, Any], schema: ImageSchema, classes: Sequence[str]) -> str:
    if schema.text_key is not None:
        return str(record.get(schema.text_key, ""))
    names = classes if schema.label_key == keys.CLASS else SAMENESS
    number = record.get(schema.label_key)
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else str(number)
