"""What the statistics say of images: the files as they were found, and the pixels as they are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.core.accounting import as_lists
from schemas.profile.columns import RAW, Column, Role
from schemas.spec import images as key
from schemas.spec.images import ImagePairsSchema

FILE_FORMAT, FILE_HEIGHT, FILE_WIDTH = "image/file/format", "image/file/height", "image/file/width"
FILE_BYTES = "image/file/bytes"
BRIGHTNESS = "image/brightness"  # the mean of all stored pixels' channels, 0 to 255
_NUMBERS = (FILE_HEIGHT, FILE_WIDTH, FILE_BYTES, BRIGHTNESS)


@dataclasses.dataclass(frozen=True)
class Facts:
    """An image's file: its format, its sides in pixels, its size; and the stored image's pixels and their sums.

    Attributes:
      pixels: how many are measured; 0 if none is, and then the sums are 0, too.
      moments: int64 `[2, 3]`: each channel's sum and its sum of squares.
    """

    format: str
    height: int
    width: int
    bytes: int
    pixels: int
    moments: np.ndarray


def described_images() -> tuple[Column, ...]:
    """What is described of images with a class each."""
    return (*_columns(""), _strings(key.TEXT, "label", "label"))


def described_pairs() -> tuple[Column, ...]:
    """What is described of pairs: both images of each. An image counts as often as it is in a pair."""
    sides = [f"{side}/" for side in ImagePairsSchema.image_names]
    return (*(column for side in sides for column in _columns(side)), _strings(key.SAME, "label", "label"))


def _columns(prefix: str) -> list[Column]:
    numbers = [Column(prefix + name, "numbers", "image", "feature", (prefix + name,)) for name in _NUMBERS]
    pixels = Column(prefix, "pixels", "image", "feature", ())
    return [_strings(prefix + FILE_FORMAT, "image", "feature"), *numbers, pixels]


def _strings(name: str, kind: str, role: Role) -> Column:
    return Column(name, "strings", kind, role, (name,))


def facts_columns(facts: Sequence[Facts], prefix: str = "") -> dict[str, pa.ListArray]:
    """The columns that `described_images` and `described_pairs` name, without the label."""
    moments = np.array([image.moments for image in facts], np.int64).reshape(len(facts), 6)
    pixels = np.array([image.pixels for image in facts], np.int64)
    measured = pixels > 0
    brightness = np.where(measured, moments[:, :3].sum(1) / np.maximum(3 * pixels, 1), np.nan)
    found = {
        FILE_FORMAT: string_lists([image.format for image in facts]),
        FILE_HEIGHT: as_lists(np.array([image.height for image in facts], np.int64)),
        FILE_WIDTH: as_lists(np.array([image.width for image in facts], np.int64)),
        FILE_BYTES: as_lists(np.array([image.bytes for image in facts], np.int64)),
        BRIGHTNESS: _lists(brightness.astype(np.float32)),
        key.SUMS: _lists(moments[:, :3]),
        key.SQUARES: _lists(moments[:, 3:]),
        key.PIXELS: as_lists(pixels),
    }
    return {prefix + name: column for name, column in found.items()}


def with_facts(records: pa.RecordBatch, facts: Sequence[Facts]) -> pa.RecordBatch:
    """The records of images with a class each, and beside them what the statistics say of these."""
    columns: Mapping[str, pa.Array] = facts_columns(facts) | {key.TEXT: records.column(key.TEXT)}
    names = [*records.schema.names, *(RAW + name for name in columns)]
    return pa.RecordBatch.from_arrays([*records.columns, *columns.values()], names=names)


def string_lists(values: Sequence[str]) -> pa.ListArray:
    """Strings as a column of lists of one."""
    return _of_width(pa.array([value.encode() for value in values], pa.binary()), 1)


def _lists(values: np.ndarray) -> pa.ListArray:
    """`[rows]` or `[rows, width]` as a column of lists."""
    return _of_width(pa.array(values.reshape(-1)), 1 if values.ndim == 1 else values.shape[1])


def _of_width(flat: pa.Array, width: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32)), flat)
