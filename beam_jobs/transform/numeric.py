"""Numeric features: missing values are filled, then all are scaled or bucketized.

All statistics are those of the present values, and are computed in one pass: tf.Transform would read the data again
for a statistic of filled values. Arrow columns become the dense tensors that its graphs take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from schemas.spec.features import Bucketize, Numeric, Scale


def dense_config(schema: pa.Schema, widths: Mapping[str, int | None]) -> TensorAdapterConfig:
    """The configuration that converts batches to dense tensors.

    Args:
      schema: of the batches.
      widths: the columns that become tensors: `[rows, width]`, or `[rows]` where the width is None.
    """
    representations = {}
    for name, width in widths.items():
        representation = schema_pb2.TensorRepresentation()
        representation.dense_tensor.column_name = name
        representation.dense_tensor.shape.SetInParent()
        if width is not None:
            representation.dense_tensor.shape.dim.add().size = width
        representations[name] = representation
    return TensorAdapterConfig(schema, representations)


QUANTILE_EPSILON = 0.001  # tft.quantiles sketches: a rank is off by this share of the rows at most


def transform_numeric(feature: Numeric, x: tf.Tensor) -> dict[str, Any]:
    """Transforms the feature's values, and adds its indicator if it declares one.

    If the schema declares no value for missing numbers, NaN passes through: a client that sends NaN gets NaN back.
    """
    absent = tf.math.is_nan(x)
    outputs = {}
    if feature.indicator:
        outputs[feature.indicator_name] = tf.cast(absent, tf.float32)
    if isinstance(feature.missing, float | int):
        x = tf.where(absent, tf.cast(feature.missing, tf.float32), x)
    outputs[feature.name] = scale_numeric(feature, x, absent)
    return outputs


def scale_numeric(feature: Numeric, x: tf.Tensor, absent: tf.Tensor) -> tf.Tensor:
    """Scales the values, and fills missing ones with the mean or the median of the present ones.

    Every statistic is computed on `x`, where tf.Transform skips NaN: a statistic of the filled values would need
    another read of the data.
    """
    name, filled = feature.name, x
    if feature.missing == "median":
        filled = restack([tf.where(tf.math.is_nan(column), median(column), column) for column in unstack(x)], x)
    elif feature.missing == "mean" and feature.transform != "z_score":
        filled = tf.where(absent, mean_of(x, name), x)
    match feature.transform:
        case "z_score" if feature.missing == "median":
            mean, deviation = mean_of(x, name), deviation_of(x, name)
            return tf.where(deviation > 0, (filled - mean) / tf.where(deviation > 0, deviation, 1.0), filled - mean)
        case "z_score":
            wide = tf.cast(x, tf.float64)  # see `mean_of`
            z = tf.cast(tft.scale_to_z_score(wide, elementwise=True, name=f"{name}_z_score"), tf.float32)
            return tf.where(absent, 0.0, z) if feature.missing == "mean" else z
        case "min_max":
            low = tft.min(tf.where(absent, x.dtype.max, x), reduce_instance_dims=False, name=f"{name}_min")
            high = tft.max(tf.where(absent, x.dtype.min, x), reduce_instance_dims=False, name=f"{name}_max")
            low = tf.where(low > high, 0.0, low)  # there is no value
            return (filled - low) / tf.where(high > low, high - low, 1.0)
        case "log":
            return tf.math.log1p(filled)
        case Scale(scale=(low, high)):
            return (filled - low) / (high - low)
        case Bucketize(bucketize=tuple(boundaries)):
            return tft.apply_buckets(filled, tf.constant([boundaries], tf.float32))
        case Bucketize(bucketize=count):
            columns = zip(unstack(x), unstack(filled), strict=True)
            quantiles = [(tft.quantiles(column, count, epsilon=QUANTILE_EPSILON), full) for column, full in columns]
            return restack([tft.apply_buckets(full, boundaries) for boundaries, full in quantiles], x)
        case _:
            return tf.identity(filled)


def mean_of(x: tf.Tensor, name: str) -> tf.Tensor:
    """The mean of each column's present values, float32.

    It is summed in float64, so that it does not depend on the number of rows or on how they are batched.
    """
    mean = tft.mean(tf.cast(x, tf.float64), reduce_instance_dims=False, name=f"{name}_mean")
    return tf.cast(mean, tf.float32)


def deviation_of(x: tf.Tensor, name: str) -> tf.Tensor:
    """The standard deviation of each column's present values, float32."""
    variance = tft.var(tf.cast(x, tf.float64), reduce_instance_dims=False, name=f"{name}_var")
    return tf.cast(tf.sqrt(variance), tf.float32)


def unstack(x: tf.Tensor) -> list[tf.Tensor]:
    """The columns of `x` if it is `[batch, n]`; `x` alone if it is `[batch]`."""
    return [x] if x.shape.rank == 1 else tf.unstack(x, axis=1)


def restack(columns: list[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """Stacks columns in the shape of `like`, which `unstack` split."""
    return columns[0] if like.shape.rank == 1 else tf.stack(columns, axis=-1)


def median(column: tf.Tensor) -> tf.Tensor:
    """The median of the present values, within `QUANTILE_EPSILON` in rank. A scalar."""
    return tft.quantiles(column, 2, epsilon=QUANTILE_EPSILON)[0][0]
