"""Declares the schema of image datasets, whose images have classes from folders or from a list.

It says how images are stored and normalized, and names the keys of a stored record, after the convention of the
ImageNet TFRecords, so that other readers work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.spec.forms import (
    Declared,
    Drift,
    Limits,
    Name,
    Share,
    Splitting,
    Strict,
    Token,
    check_shares,
    limits_of,
)

ENCODED = "image/encoded"  # string []: a JPEG, or uint8 pixels row by row, red, green, blue
FORMAT = "image/format"  # string []: one of FORMATS
HEIGHT = "image/height"  # int64 []
WIDTH = "image/width"  # int64 []
CLASS = "image/class/label"  # int64 []: the class's place among the classes, from 0 (ImageNet's own files count from 1)
TEXT = "image/class/text"  # string []: the class's name
FILENAME = "image/filename"  # string []: folder/file, or the path as the CSV file gives it

FORMATS = {"jpeg": b"JPEG", "raw": b"RAW"}  # by `store`

# Per-image moments of the canonical pixels as they are before they are encoded: what channel statistics are made of.
SUMS = "image/sums"  # int64 [3]: red, green, blue
SQUARES = "image/squares"  # int64 [3]: of squares
PIXELS = "image/pixels"  # int64 []


MAX_PIXELS = 2**25  # 33 megapixels
MAX_SIDE = 4096  # of what a schema asks for
LONGEST_SIDE = 2**14  # of what is stored; JPEG itself ends at 65,500

Side = Annotated[int, Field(gt=0, le=MAX_SIDE)]
Channel = Annotated[float, Field(ge=0, le=255)]
Spread = Annotated[float, Field(gt=0, le=255)]


class Shorter(Strict):
    """The shorter side becomes this long; the longer one follows."""

    shorter: Side

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width after resizing, the longer side rounded half up.

        >>> Shorter(shorter=256).size(375, 500)
        (256, 341)
        """
        short = min(height, width)
        return _scaled(height, self.shorter, short), _scaled(width, self.shorter, short)


class Exact(Strict):
    """Resizes to this height and width, regardless of the proportions."""

    exact: tuple[Side, Side]

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width after resizing."""
        return self.exact


def _scaled(side: int, to: int, short: int) -> int:
    return (2 * side * to + short) // (2 * short)


class FixedChannels(Strict):
    """Given means and standard deviations of red, green and blue, in 0 to 255; Caffe's means are 123, 117, 104."""

    means: tuple[Channel, Channel, Channel]
    deviations: tuple[Spread, Spread, Spread] = (1.0, 1.0, 1.0)


class ImageOptions(Strict):
    """The key `images`: how each file is processed before it is stored, and in the model's graph."""

    listing: Literal["folders", "csv"] = "folders"  # a file's label: its folder's name, or a line `path,label`
    root: str | None = None  # csv: the folder that the paths are under; relative to the CSV file's own folder
    resize: Shorter | Exact
    downscale: Annotated[int, Field(ge=1, le=8)] = 2  # a JPEG is decoded at so many times its new size, or more
    max_pixels: Annotated[int, Field(gt=0, le=2**28)] = MAX_PIXELS  # an image of more is rejected undecoded
    store: Literal["jpeg", "raw"] = "jpeg"  # raw: uint8 pixels, more disk and less work in training
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    crop: tuple[Side, Side] | None = None  # what a model sees, height and width; None: the exact size
    channels: Literal["measured"] | FixedChannels = "measured"

    @model_validator(mode="after")
    def _sizes_fit(self) -> ImageOptions:
        if (self.listing == "csv") != (self.root is not None):
            raise ValueError(
                "`root` belongs to `listing: csv`, and is required there: the folder that the paths are relative to"
            )
        least = self.resize.exact if isinstance(self.resize, Exact) else (self.resize.shorter, self.resize.shorter)
        if self.crop is None and isinstance(self.resize, Shorter):
            raise ValueError("resize: {shorter: N} gives images of different sizes; add `crop: [height, width]`")
        if self.crop is not None and (self.crop[0] > least[0] or self.crop[1] > least[1]):
            raise ValueError(f"crop {list(self.crop)} is larger than the resized image, {list(least)}")
        if least[0] * least[1] > self.max_pixels:
            raise ValueError(f"resize gives {least[0] * least[1]:,} pixels, but max_pixels allows {self.max_pixels:,}")
        return self

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of what a model sees."""
        return self.resize.size(1, 1) if self.crop is None else self.crop  # without `crop` the size is exact

    @property
    def max_file_bytes(self) -> int:
        """A file of more is rejected unread: uncompressed pixels of 4 bytes, and room for what else a file holds."""
        return 4 * self.max_pixels + 2**24


class ImageLabel(Strict):
    """The class of an image: one of the given values, or else of the labels that the listing holds."""

    values: Annotated[tuple[Token, ...], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _each_once(self) -> ImageLabel:
        if self.values is not None and len(set(self.values)) != len(self.values):
            raise ValueError("`values` must contain each value only once")
        return self


class ImageSplit(Splitting):
    """Shares of a stable hash over the file's bytes (two copies of a picture share a split), its name, or its class.

    By folder, all images of a class are in one split: a model is evaluated on people whom it has never seen.
    """

    by: Literal["content", "name", "folder"] = "content"
    train: Share = 0.8
    eval: Share = 0.1
    test: Share = 0.1

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> ImageSplit:
        check_shares(self.train, self.eval, self.test)
        return self


PAIR = ("left", "right")  # the two images of a pair, as a model's features and an export's inputs call them
SAMENESS = ("different", "same")  # the classes of pairs, by id


class ImageSchema(Declared):
    """Images, each of one class.

    If the split is by folder, no class is in two splits, so there is nothing to classify: models then learn to tell of
    a pair of images whether both are of one class, such as of one person.
    """

    records: ClassVar[str] = "images"

    name: Name
    images: ImageOptions
    format: Literal["image_folder"]  # the order of the keys is part of the fingerprint
    drift: Drift | None = Field(default=None, exclude=True)  # changes no record, so it is not in the fingerprint
    label: ImageLabel = ImageLabel()
    split: ImageSplit = ImageSplit()

    @property
    def pairs(self) -> bool:
        """Whether models compare two images, instead of classifying one."""
        return self.split.by == "folder"

    @property
    def examples(self) -> str:
        """What models are trained on."""
        return "pairs" if self.pairs else self.records

    @property
    def image_names(self) -> tuple[str, ...]:
        """What a model's features and an export's inputs are called."""
        return PAIR if self.pairs else ("image",)

    def model_classes(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Returns the classes of a model, by id. `classes`: those of the images."""
        return SAMENESS if self.pairs else tuple(classes)

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have a share."""
        return self.split.splits

    def drift_limits(self, name: str) -> Limits | None:
        """Returns the thresholds of drift, which are the same for all statistics of images."""
        return limits_of(self.drift)

    @property
    def limits_drift(self) -> bool:
        """Whether there is any threshold of drift."""
        return limits_of(self.drift) is not None
