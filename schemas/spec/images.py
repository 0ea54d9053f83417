"""Declares the schema of image datasets: where the images' classes come from, and how images are stored and normalized.

Also names the keys of a stored record. They follow the convention of the ImageNet TFRecords, so that other programs can
read the records.
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
CLASS = "image/class/label"  # int64 []: the id of the class, from 0 (ImageNet's own files count from 1)
TEXT = "image/class/text"  # string []: the class's name
FILENAME = "image/filename"  # string []: folder/file, or the path as the CSV file gives it

FORMATS = {"jpeg": b"JPEG", "raw": b"RAW"}  # by `store`

# Sums over the pixels of an image before it is encoded, from which the channels' means and deviations are computed.
SUMS = "image/sums"  # int64 [3]: red, green, blue
SQUARES = "image/squares"  # int64 [3]: the sums of squares
PIXELS = "image/pixels"  # int64 []: the number of pixels


MAX_PIXELS = 2**25  # 33 megapixels
MAX_SIDE = 4096  # the longest side, in pixels, that a schema can ask for
LONGEST_SIDE = 2**14  # the longest side, in pixels, of a stored image; a JPEG can have 65,500

Side = Annotated[int, Field(gt=0, le=MAX_SIDE)]
Channel = Annotated[float, Field(ge=0, le=255)]
Spread = Annotated[float, Field(gt=0, le=255)]


class Shorter(Strict):
    """Resizes an image so that its shorter side has this length. The proportions stay."""

    shorter: Side

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width after resizing, the longer side rounded half up.

        >>> Shorter(shorter=256).size(375, 500)
        (256, 341)
        """
        short = min(height, width)
        return _scaled(height, self.shorter, short), _scaled(width, self.shorter, short)


class Exact(Strict):
    """Resizes an image to this height and width. The proportions may change."""

    exact: tuple[Side, Side]

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width after resizing."""
        return self.exact


def _scaled(side: int, to: int, short: int) -> int:
    """Returns side * to / short, rounded half up, computed in integers so that the result is exact."""
    return (2 * side * to + short) // (2 * short)


class FixedChannels(Strict):
    """Means and standard deviations of red, green and blue that the schema gives, from 0 to 255.

    For example, the means of Caffe's models are 123, 117 and 104.
    """

    means: tuple[Channel, Channel, Channel]
    deviations: tuple[Spread, Spread, Spread] = (1.0, 1.0, 1.0)


class ImageOptions(Strict):
    """The key `images` of a schema: how each file is processed before it is stored, and in the model's graph."""

    listing: Literal["folders", "csv"] = "folders"  # a file's label: its folder's name, or a line `path,label`
    root: str | None = None  # csv: the folder that the paths are under; relative to the CSV file's own folder
    resize: Shorter | Exact
    downscale: Annotated[int, Field(ge=1, le=8)] = 2  # a JPEG is decoded at this many times its new size, or larger
    max_pixels: Annotated[int, Field(gt=0, le=2**28)] = MAX_PIXELS  # a larger image is rejected and not decoded
    store: Literal["jpeg", "raw"] = "jpeg"  # raw: uint8 pixels take more disk space, and training works less
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    crop: tuple[Side, Side] | None = None  # height and width of a model's input; None: the exact size
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
        """Height and width of the images that a model reads."""
        return self.resize.size(1, 1) if self.crop is None else self.crop  # without `crop`, `resize` is `Exact`

    @property
    def max_file_bytes(self) -> int:
        """The largest size of a file in bytes. Larger files are rejected without being read.

        It leaves room for uncompressed pixels of 4 bytes, and 16 MB for everything else in a file.
        """
        return 4 * self.max_pixels + 2**24


class ImageLabel(Strict):
    """The class of an image: one of the given values, or if there are no values, any label in the listing."""

    values: Annotated[tuple[Token, ...], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _each_once(self) -> ImageLabel:
        if self.values is not None and len(set(self.values)) != len(self.values):
            raise ValueError("`values` must contain each value only once")
        return self


class ImageSplit(Splitting):
    """Divides images into splits by a stable hash: of the file's bytes, of its name, or of its class.

    By content, two copies of a picture are in the same split. By folder, all images of a class are in one split, so
    that a model is evaluated on classes (such as persons) that it was not trained on.
    """

    by: Literal["content", "name", "folder"] = "content"
    train: Share = 0.8
    eval: Share = 0.1
    test: Share = 0.1

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> ImageSplit:
        check_shares(self.train, self.eval, self.test)
        return self


PAIR = ("left", "right")  # the names of a pair's two images, in a model's features and an export's inputs
SAMENESS = ("different", "same")  # the classes of pairs, by id


class ImageSchema(Declared):
    """The schema of a dataset of images, each of one class.

    If the split is by folder, no class is in two splits, so a classifier could not be evaluated. Models then learn to
    compare two images: whether both are of one class, such as of one person.
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
        """The word for what models are trained on: "pairs" or "images"."""
        return "pairs" if self.pairs else self.records

    @property
    def image_names(self) -> tuple[str, ...]:
        """The names of the images in a model's features and in an export's inputs."""
        return PAIR if self.pairs else ("image",)

    def model_classes(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Returns the classes that a model predicts, by id.

        Args:
          classes: the classes of the images, by id.
        """
        return SAMENESS if self.pairs else tuple(classes)

    @property
    def split_names(self) -> tuple[str, ...]:
        """The names of the splits that have a share."""
        return self.split.splits

    def drift_limits(self, name: str) -> Limits | None:
        """Returns the thresholds of drift, which are the same for all statistics of images."""
        return limits_of(self.drift)

    @property
    def limits_drift(self) -> bool:
        """Whether the schema has a threshold of drift."""
        return limits_of(self.drift) is not None
