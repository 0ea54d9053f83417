"""The schemas of image datasets: classes by folder or list, and pairs of one identity or of two."""

from __future__ import annotations

import hashlib
from typing import ClassVar, Literal

from schemas.spec.image_options import ImageLabel, ImageOptions, ImageSplit, PairOptions
from schemas.spec.strict import Name, Strict

SAME = ("different", "same")  # the classes of pairs, by id


class _ImageSchema(Strict):
    name: Name
    images: ImageOptions

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON: the same for two files that declare the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class ImageFolderSchema(_ImageSchema):
    """Images, each of one class."""

    records: ClassVar[str] = "images"
    format: Literal["image_folder"]
    label: ImageLabel = ImageLabel()
    split: ImageSplit = ImageSplit()

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have a share."""
        return self.split.splits


class ImagePairsSchema(_ImageSchema):
    """Pairs of images, which show the same identity or not."""

    records: ClassVar[str] = "pairs"
    format: Literal["image_pairs"]
    pairs: PairOptions

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have pairs."""
        return self.pairs.splits


ImageSchema = ImageFolderSchema | ImagePairsSchema
