"""What is measured of images: facts for the statistics, and the channels' mean and deviation for the transform.

A row of `pixels` is one pixel, so the transform's graph takes any number of images of any size, flattened to `[n, 3]`.
The channels' statistics come from each image's sums, taken as it is ingested, exact in int64: no image is read again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.core.accounting import as_lists, passthrough
from beam_jobs.transform.numeric import tensor_config
from beam_jobs.transform.preprocessing import lookup
from beam_jobs.transform.vocabularies import UniqueValues
from schemas.profile.columns import RAW, ProfiledColumn, Role
from schemas.spec import images as key
from schemas.spec.images import FixedChannels
from schemas.spec.table import SPLIT, SPLITS

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


def described_images() -> tuple[ProfiledColumn, ...]:
    """Returns the columns that statistics of labelled images have."""
    return (
        _strings(FILE_FORMAT, "image", "feature"),
        *(ProfiledColumn(name, "numbers", "image", "feature", (name,)) for name in _NUMBERS),
        _strings(key.TEXT, "label", "label"),
    )


def _strings(name: str, kind: str, role: Role) -> ProfiledColumn:
    return ProfiledColumn(name, "strings", kind, role, (name,))


def facts_columns(facts: Sequence[Facts]) -> dict[str, pa.ListArray]:
    """Returns the columns that `described_images` names, without the label."""
    moments = np.array([image.moments for image in facts], np.int64).reshape(len(facts), 6)
    pixels = np.array([image.pixels for image in facts], np.int64)
    measured = pixels > 0
    brightness = np.where(measured, moments[:, :3].sum(1) / np.maximum(3 * pixels, 1), np.nan)
    return {
        FILE_FORMAT: string_lists([image.format for image in facts]),
        FILE_HEIGHT: as_lists(np.array([image.height for image in facts], np.int64)),
        FILE_WIDTH: as_lists(np.array([image.width for image in facts], np.int64)),
        FILE_BYTES: as_lists(np.array([image.bytes for image in facts], np.int64)),
        BRIGHTNESS: number_lists(brightness.astype(np.float32)),
    }


def with_facts(records: pa.RecordBatch, facts: Sequence[Facts]) -> pa.RecordBatch:
    """Adds to records of labelled images the columns that the statistics describe."""
    columns: Mapping[str, pa.Array] = facts_columns(facts) | {key.TEXT: records.column(key.TEXT)}
    names = [*records.schema.names, *(RAW + name for name in columns)]
    return pa.RecordBatch.from_arrays([*records.columns, *columns.values()], names=names)


def string_lists(values: Sequence[str | bytes]) -> pa.ListArray:
    """Strings as a column of lists of one."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return _of_width(pa.array(encoded, pa.binary()), 1)


def number_lists(values: np.ndarray) -> pa.ListArray:
    """Makes a column of lists from an array `[rows]` or `[rows, width]`."""
    return _of_width(pa.array(values.reshape(-1)), 1 if values.ndim == 1 else values.shape[1])


def _of_width(flat: pa.Array, width: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32)), flat)


PIXEL_VALUES = "pixels"  # float32 [3]: one pixel, 0 to 255

ANALYZED = pa.schema(
    [
        (PIXEL_VALUES, pa.list_(pa.float32())),
        (key.SUMS, pa.list_(pa.int64())),
        (key.SQUARES, pa.list_(pa.int64())),
        (key.PIXELS, pa.list_(pa.int64())),
        (key.TEXT, pa.list_(pa.binary())),
    ]
)


@dataclasses.dataclass(frozen=True)
class ImagePreprocessing:
    """The derived `preprocessing_fn` of images, as a value that can be pickled."""

    channels: Literal["measured"] | FixedChannels
    classes: tuple[str, ...]

    def __call__(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`pixels` float32 `[n, 3]` to the same normalized; `image/class/text` to `image/class/label`, int64."""
        if isinstance(self.channels, FixedChannels):
            means, deviations = tf.constant(self.channels.means), tf.constant(self.channels.deviations)
        else:
            means, deviations = measured(inputs)
        return {
            PIXEL_VALUES: (inputs[PIXEL_VALUES] - means) / deviations,
            key.CLASS: lookup(UniqueValues.of(inputs[key.TEXT]), self.classes, 0),
        }


def measured(inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns mean and standard deviation of each channel over all pixels of the train split, float32 `[3]`."""
    count = tf.cast(tft.sum(inputs[key.PIXELS], name="pixels"), tf.float64)
    sums = tft.sum(inputs[key.SUMS], reduce_instance_dims=False, name="sums")
    squares = tft.sum(inputs[key.SQUARES], reduce_instance_dims=False, name="squares")
    means = tf.cast(sums, tf.float64) / count
    deviations = tf.sqrt(tf.maximum(tf.cast(squares, tf.float64) / count - means**2, 0.0))
    deviations = tf.where(deviations > 0, deviations, 1.0)  # a constant channel is not scaled
    return tf.cast(means, tf.float32), tf.cast(deviations, tf.float32)


def to_analyze(records: pa.RecordBatch, facts: Sequence[Facts]) -> pa.RecordBatch:
    """Makes what tf.Transform analyzes: moments of the train split's images, and a zero pixel for the graph."""
    moments = np.array([image.moments for image in facts], np.int64).reshape(len(facts), 6)
    columns = {
        PIXEL_VALUES: number_lists(np.zeros((len(facts), 3), np.float32)),
        key.SUMS: number_lists(moments[:, :3]),
        key.SQUARES: number_lists(moments[:, 3:]),
        key.PIXELS: as_lists(np.array([image.pixels for image in facts], np.int64)),
        key.TEXT: records.column(key.TEXT),
    }
    train = pa.array(passthrough(records, SPLIT) == SPLITS.index("train"))
    return pa.RecordBatch.from_pydict(columns, schema=ANALYZED).filter(train)


def adapter_config() -> TensorAdapterConfig:
    """Returns how tf.Transform converts the analyzed columns to tensors."""
    widths = {PIXEL_VALUES: 3, key.SUMS: 3, key.SQUARES: 3, key.PIXELS: None, key.TEXT: None}
    return tensor_config(ANALYZED, widths)
