"""One table says how the images to predict on are listed, for every image format that a schema can declare."""

from __future__ import annotations

from schemas.images.items import LISTS
from schemas.spec.images import ImageSchema
from schemas.spec.messages import FORMATS


def test_every_format_of_images_is_listed():
    assert set(LISTS) == {schema for schema in FORMATS.values() if issubclass(schema, ImageSchema)}
