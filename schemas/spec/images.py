"""The schemas of image datasets: images with classes from folders or a list, and pairs of images.

Everything that differs between formats of images is declared here; all readers of such data ask the schema.
"""

from __future__ import annotations

import abc
import hashlib
from typing import ClassVar, Literal

from pydantic import Field

from schemas.spec.drift import Drift, Limits, limits_of
from schemas.spec.image_keys import CLASS, SAME, TEXT
from schemas.spec.image_options import ImageLabel, ImageOptions, ImageSplit, PairOptions
from schemas.spec.strict import Name, Strict

SAMENESS = ("different", "same")  # the classes of pairs, by id


class ImageSchema(Strict, abc.ABC):
    """What every format of images has.

    Attributes:
      records: what its records are called.
      image_names: the images of a record, as a model's features and an export's inputs call them.
      label_key: where a record keeps its class id.
      text_key: where a record keeps its class's name; None where it does not.
      example_input: what `--input` of `trainer.predict` may be, as in a shell.
    """

    records: ClassVar[str]
    image_names: ClassVar[tuple[str, ...]]
    label_key: ClassVar[str]
    text_key: ClassVar[str | None] = None
    example_input: ClassVar[str]

    name: Name
    images: ImageOptions
    format: str  # the order of the keys is part of the fingerprint
    drift: Drift | None = Field(default=None, exclude=True)  # changes no record, so it is not in the fingerprint

    @property
    @abc.abstractmethod
    def split_names(self) -> tuple[str, ...]:
        """The splits that there are."""

    def drift_limits(self, name: str) -> Limits | None:
        """The thresholds of drift of what the statistics describe of images, which are the same for all of it."""
        return limits_of(self.drift)

    @property
    def limits_drift(self) -> bool:
        """Whether there is any threshold of drift."""
        return limits_of(self.drift) is not None

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON: the same for two files that declare the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @classmethod
    def stored_key(cls, image: str, key: str) -> str:
        """Where a record keeps something of one of its images: `image/encoded`, or `left/image/encoded`."""
        return key if len(cls.image_names) == 1 else f"{image}/{key}"


class ImageFolderSchema(ImageSchema):
    """Images, each of one class."""

    records: ClassVar[str] = "images"
    image_names: ClassVar[tuple[str, ...]] = ("image",)
    label_key: ClassVar[str] = CLASS
    text_key: ClassVar[str | None] = TEXT
    example_input: ClassVar[str] = "'photos/*'"

    format: Literal["image_folder"]
    label: ImageLabel = ImageLabel()
    split: ImageSplit = ImageSplit()

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have a share."""
        return self.split.splits


class ImagePairsSchema(ImageSchema):
    """Pairs of images, which show the same identity or not."""

    records: ClassVar[str] = "pairs"
    image_names: ClassVar[tuple[str, ...]] = ("left", "right")
    label_key: ClassVar[str] = SAME
    example_input: ClassVar[str] = "pairs.csv"

    format: Literal["image_pairs"]
    pairs: PairOptions

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have pairs."""
        return self.pairs.splits
