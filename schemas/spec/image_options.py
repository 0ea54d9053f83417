"""The image keys of a schema file: how images are stored and normalized, and how pairs are drawn."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.spec.strict import Positive, Strict, Token

SPLITS = ("train", "eval", "test")
MAX_PIXELS = 2**25  # 33 megapixels
MAX_SIDE = 4096  # of what a schema asks for
LONGEST_SIDE = 2**14  # of what is stored; JPEG itself ends at 65,500

Side = Annotated[int, Field(gt=0, le=MAX_SIDE)]
Share = Annotated[float, Field(ge=0, le=1)]
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


class ImageSplit(Strict):
    """Shares of a stable hash over the file's bytes (two copies of a picture share a split), or over its name."""

    by: Literal["content", "name"] = "content"
    train: Share = 0.8
    eval: Share = 0.1
    test: Share = 0.1

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> ImageSplit:
        _check_shares(self.train, self.eval, self.test)
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a share."""
        return tuple(s for s in SPLITS if getattr(self, s) > 0)


class SplitPairs(Strict):
    """A split of pairs: its share of the identities, and how many pairs are drawn among them."""

    identities: Annotated[float, Field(gt=0, le=1)]
    same: Positive
    different: Positive


class PairOptions(Strict):
    """The key `pairs`: which pairs are drawn from the listing. No identity is in two splits."""

    seed: Annotated[int, Field(ge=0)] = 0
    train: SplitPairs
    eval: SplitPairs | None = None
    test: SplitPairs | None = None

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> PairOptions:
        _check_shares(*(0.0 if pairs is None else pairs.identities for pairs in (self.train, self.eval, self.test)))
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have pairs."""
        return tuple(s for s in SPLITS if getattr(self, s) is not None)


def _check_shares(train: float, evaluation: float, test: float) -> None:
    total = train + evaluation + test
    if abs(total - 1) > 1e-9:
        shares = f"train {train:g}, eval {evaluation:g} and test {test:g}"  # one of them may be a default
        raise ValueError(f"{shares} sum to {total:g}; the sum must be 1")
    if train == 0:
        raise ValueError("train: 0 leaves no data for training")
