"""What images are called: as a model's features, as a served one's inputs, and in the stored records."""

from __future__ import annotations

from schemas.images.keys import CLASS
from schemas.spec.images import ImagePairsSchema, ImageSchema

IMAGE, LEFT, RIGHT = "image", "left", "right"
SAME = "same"  # the label of a pair in its record


def image_names(schema: ImageSchema) -> tuple[str, ...]:
    """The features of a model, and the inputs of a served one: `image`, or `left` and `right`."""
    return (LEFT, RIGHT) if isinstance(schema, ImagePairsSchema) else (IMAGE,)


def stored_key(name: str, key: str) -> str:
    """Where a record keeps something of one of its images: `image/encoded`, or `left/image/encoded`."""
    return key if name == IMAGE else f"{name}/{key}"


def label_key(schema: ImageSchema) -> str:
    """Where a record keeps its class id."""
    return SAME if isinstance(schema, ImagePairsSchema) else CLASS
