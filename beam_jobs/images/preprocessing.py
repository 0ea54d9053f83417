"""The `preprocessing_fn` of images: pixels normalized by the channels' statistics, class names to ids.

A row of `pixels` is one pixel, so the graph takes any number of images of any size, flattened to `[n, 3]`. The
statistics come from each image's sums, taken as it is ingested, exact in int64: no image is read again for them.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.transform.numeric import dense_config
from beam_jobs.transform.preprocessing import lookup
from beam_jobs.transform.vocabularies import UniqueValues
from schemas.spec import images as key
from schemas.spec.images import FixedChannels

PIXEL_VALUES = "pixels"  # float32 [3]: one pixel, 0 to 255

_THREES = pa.list_(pa.float32())
ANALYZED = pa.schema(
    [
        (PIXEL_VALUES, _THREES),
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
    """Mean and standard deviation of each channel over all pixels of the train split, float32 `[3]`."""
    count = tf.cast(tft.sum(inputs[key.PIXELS], name="pixels"), tf.float64)
    sums = tft.sum(inputs[key.SUMS], reduce_instance_dims=False, name="sums")
    squares = tft.sum(inputs[key.SQUARES], reduce_instance_dims=False, name="squares")
    means = tf.cast(sums, tf.float64) / count
    deviations = tf.sqrt(tf.maximum(tf.cast(squares, tf.float64) / count - means**2, 0.0))
    deviations = tf.where(deviations > 0, deviations, 1.0)  # a constant channel is not scaled
    return tf.cast(means, tf.float32), tf.cast(deviations, tf.float32)


def to_analyze(moments: pa.RecordBatch) -> pa.RecordBatch:
    """The moments of each image with a zero pixel, which the graph needs as input and no statistic uses."""
    rows = moments.num_rows
    pixels = pa.FixedSizeListArray.from_arrays(pa.array([0.0] * (3 * rows), pa.float32()), 3).cast(_THREES)
    columns = [pixels, *(moments.column(name) for name in ANALYZED.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=ANALYZED)


def adapter_config() -> TensorAdapterConfig:
    """How tf.Transform converts the analyzed columns to tensors."""
    widths = {PIXEL_VALUES: 3, key.SUMS: 3, key.SQUARES: 3, key.PIXELS: None, key.TEXT: None}
    return dense_config(ANALYZED, widths)
