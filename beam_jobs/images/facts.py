"""Measurements of images: facts for the statistics, and the mean and deviation of each channel for the transform.

The transform normalizes single pixels: a row of `pixels` is one pixel, so that its graph works for images of any size,
flattened to `[n, 3]`. The mean and the deviation are computed from sums over each image's pixels. The sums are taken
when the image is ingested, and are exact in int64, so no image has to be read again.
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
BRIGHTNESS = "image/brightness"  # the mean over all pixels and channels of the stored image, 0 to 255
_NUMBERS = (FILE_HEIGHT, FILE_WIDTH, FILE_BYTES, BRIGHTNESS)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts about one image: its file, and sums over the pixels of the stored image.

    Attributes:
      format: the format of the file, "jpeg" or "png".
      height, width: the sides of the image in the file, in pixels.
      bytes: the size of the file.
      pixels: the number of measured pixels of the stored image; 0 if the image was not measured.
      moments: the sum and the sum of squares of each channel, int64 `[2, 3]`; 0 if the image was not measured.
    """

    format: str
    height: int
    width: int
    bytes: int
    pixels: int
    moments: np.ndarray


def described_images() -> tuple[ProfiledColumn, ...]:
    """Returns the columns that the statistics of labelled images describe."""
    return (
        _strings(FILE_FORMAT, "image", "feature"),
        *(ProfiledColumn(name, "numbers", "image", "feature", (name,)) for name in _NUMBERS),
        _strings(key.TEXT, "label", "label"),
    )


def _strings(name: str, kind: str, role: Role) -> ProfiledColumn:
    return ProfiledColumn(name, "strings", kind, role, (name,))


def facts_columns(facts: Sequence[Facts]) -> dict[str, pa.ListArray]:
    """Returns the columns that `described_images` names, without the label, as lists of one value for each image."""
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
    """Adds to records of labelled images the columns that the statistics describe. Their names begin with RAW."""
    columns: Mapping[str, pa.Array] = facts_columns(facts) | {key.TEXT: records.column(key.TEXT)}
    names = [*records.schema.names, *(RAW + name for name in columns)]
    return pa.RecordBatch.from_arrays([*records.columns, *columns.values()], names=names)


def string_lists(values: Sequence[str | bytes]) -> pa.ListArray:
    """Makes a column of lists from strings. Each list holds one string."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return _of_width(pa.array(encoded, pa.binary()), 1)


def number_lists(values: np.ndarray) -> pa.ListArray:
    """Makes a column of lists, one for each row, from an array `[rows]` or `[rows, width]`."""
    return _of_width(pa.array(values.reshape(-1)), 1 if values.ndim == 1 else values.shape[1])


def _of_width(flat: pa.Array, width: int) -> pa.ListArray:
    """Divides values into lists of `width` values each."""
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32)), flat)


PIXEL_VALUES = "pixels"  # float32 [3]: the channels of one pixel, 0 to 255

ANALYZED = pa.schema(  # the columns that tf.Transform analyzes, one row for each image
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
    """The `preprocessing_fn` of images, derived from the schema. An object of this class can be pickled.

    Attributes:
      channels: "measured", or the fixed mean and deviation of each channel from the schema.
      classes: the labels in the order of their ids.
    """

    channels: Literal["measured"] | FixedChannels
    classes: tuple[str, ...]

    def __call__(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Normalizes pixels, and looks up the ids of labels.

        Args:
          inputs: the columns of ANALYZED, with `pixels` as float32 `[n, 3]`.

        Returns:
          `pixels`, normalized, float32 `[n, 3]`; and `image/class/label`, the ids of `image/class/text`, int64.
        """
        if isinstance(self.channels, FixedChannels):
            means, deviations = tf.constant(self.channels.means), tf.constant(self.channels.deviations)
        else:
            means, deviations = measured(inputs)
        return {
            PIXEL_VALUES: (inputs[PIXEL_VALUES] - means) / deviations,
            key.CLASS: lookup(UniqueValues.of(inputs[key.TEXT]), self.classes, 0),
        }


def measured(inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean and the standard deviation of each channel over all pixels of the train split, float32 `[3]`.

    tf.Transform adds up the sums of all images. The variance is the mean of the squares minus the square of the mean.
    """
    count = tf.cast(tft.sum(inputs[key.PIXELS], name="pixels"), tf.float64)
    sums = tft.sum(inputs[key.SUMS], reduce_instance_dims=False, name="sums")
    squares = tft.sum(inputs[key.SQUARES], reduce_instance_dims=False, name="squares")
    means = tf.cast(sums, tf.float64) / count
    deviations = tf.sqrt(tf.maximum(tf.cast(squares, tf.float64) / count - means**2, 0.0))
    deviations = tf.where(deviations > 0, deviations, 1.0)  # a constant channel is not scaled
    return tf.cast(means, tf.float32), tf.cast(deviations, tf.float32)


def to_analyze(records: pa.RecordBatch, facts: Sequence[Facts]) -> pa.RecordBatch:
    """Makes the batch that tf.Transform analyzes: the sums of the images of the train split.

    The column `pixels` is only there because the transform's graph needs it as an input; it holds a zero pixel.
    """
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
