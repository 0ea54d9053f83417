"""The schemas of image datasets: images with classes from folders or a list, and pairs of images.

Everything that differs between formats of images is declared here; all readers of such data ask the schema: how images
are stored and normalized, how pairs are drawn, and the keys of a stored record, after the convention of the ImageNet
TFRecords, so that other readers work.
"""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from schemas.spec.forms import (
    Declared,
    Drift,
    Limits,
    Name,
    Positive,
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
SAME = "same"  # int64 []: of a pair, 1 where both images show one identity
FILENAME = "image/filename"  # string []: folder/file, or the path as the CSV file gives it

FORMATS = {"jpeg": b"JPEG", "raw": b"RAW"}  # by `store`

# Per-image moments of the canonical pixels as they are before they are encoded: what channel statistics are made of.
SUMS = "image/sums"  # int64 [3]: red, green, blue
SQUARES = "image/squares"  # int64 [3]: of squares
PIXELS = "image/pixels"  # int64 []


MAX_PIXELS = 2**25  # 33 megapixels
TWICE = 2  # the default of `downscale`
MAX_SIDE = 4096  # of what a schema asks for
LONGEST_SIDE = 2**14  # of what is stored; JPEG itself ends at 65,500

Side = Annotated[int, Field(gt=0, le=MAX_SIDE)]
Channel = Annotated[float, Field(ge=0, le=255)]
Spread = Annotated[float, Field(gt=0, le=255)]


class Shorter(Strict):
    """The shorter side becomes this long; the longer one follows."""

    shorter: Side

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing, the longer side rounded half up."""
        short = min(height, width)
        return _scaled(height, self.shorter, short), _scaled(width, self.shorter, short)


class Exact(Strict):
    """Resizes to this height and width, regardless of the proportions."""

    exact: tuple[Side, Side]

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing."""
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
    downscale: Annotated[int, Field(ge=1, le=8)] = TWICE  # a JPEG is decoded at so many times its new size, or more
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

    @model_serializer(mode="wrap")
    def _without_a_later_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A schema that does not say `downscale` keeps the fingerprint that it had before there was such a key."""
        found: dict[str, Any] = serialize(self)
        if self.downscale == TWICE:
            found.pop("downscale", None)
        return found

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of what a model sees."""
        if self.crop is not None:
            return self.crop
        assert isinstance(self.resize, Exact)  # noqa: S101 - the validator saw to it
        return self.resize.exact

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
    """Shares of a stable hash over the file's bytes (two copies of a picture share a split), or over its name."""

    by: Literal["content", "name"] = "content"
    train: Share = 0.8
    eval: Share = 0.1
    test: Share = 0.1

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> ImageSplit:
        check_shares(self.train, self.eval, self.test)
        return self


class SplitPairs(Strict):
    """A split of pairs: its share of the identities, and how many pairs are drawn among them."""

    identities: Annotated[float, Field(gt=0, le=1)]
    same: Positive
    different: Positive


class PairOptions(Splitting):
    """The key `pairs`: which pairs are drawn from the listing. No identity is in two splits."""

    seed: Annotated[int, Field(ge=0)] = 0
    train: SplitPairs
    eval: SplitPairs | None = None
    test: SplitPairs | None = None

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> PairOptions:
        check_shares(*(0.0 if pairs is None else pairs.identities for pairs in (self.train, self.eval, self.test)))
        return self


SAMENESS = ("different", "same")  # the classes of pairs, by id


class ImageSchema(Declared, abc.ABC):
    """What every format of images has.

    Attributes:
      records: what its records are called.
      image_names: the images of a record, as a model's features and an export's inputs call them.
      label_key: where a record keeps its class id.
      text_key: where a record keeps its class's name; None where it does not.
    """

    records: ClassVar[str]
    image_names: ClassVar[tuple[str, ...]]
    label_key: ClassVar[str]
    text_key: ClassVar[str | None] = None

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

    format: Literal["image_pairs"]
    pairs: PairOptions

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have pairs."""
        return self.pairs.splits
