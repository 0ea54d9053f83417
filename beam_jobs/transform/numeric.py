"""Numeric features: values are clipped, missing ones filled, then all are scaled or bucketized.

All columns come side by side in one tensor, and all statistics are computed in one pass. Arrow columns become the dense
tensors that tf.Transform's graphs take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from schemas.spec.features import SMALLEST_NORMAL, Bucketize, Numeric, Scale
from schemas.spec.forms import RawColumn


def tensor_config(
    schema: pa.Schema, widths: Mapping[str, int | None], varying: Iterable[str] = ()
) -> TensorAdapterConfig:
    """Returns the configuration that converts batches to tensors.

    Args:
      schema: of the batches.
      widths: the columns that become dense tensors: `[rows, width]`, or `[rows]` where the width is None.
      varying: those that become sparse ones.
    """
    representations = {}
    for name in varying:
        representations[name] = schema_pb2.TensorRepresentation()
        representations[name].varlen_sparse_tensor.column_name = name
    for name, width in widths.items():
        representation = schema_pb2.TensorRepresentation()
        representation.dense_tensor.column_name = name
        representation.dense_tensor.shape.SetInParent()
        if width is not None:
            representation.dense_tensor.shape.dim.add().size = width
        representations[name] = representation
    return TensorAdapterConfig(schema, representations)


QUANTILE_EPSILON = 0.001  # tft.quantiles sketches: a rank is off by this share of the rows at most
LEAST_EPSILON = 0.0001  # of clip, whose ranks are off by a tenth of the rows beyond: a sketch's size is by 1/epsilon
NEXT_TO_NOTHING = 1e-9  # of a row's weight: with a billion batches a row's


def transform_numbers(features: Sequence[Numeric], x: tf.Tensor) -> dict[str, Any]:
    """Transforms numeric features, and adds the indicators that they declare.

    If the schema declares no value for missing numbers, NaN passes through: a client that sends NaN gets NaN back.
    Columns that are transformed alike are one tensor, and what is measured of them is one analyzer: tf.Transform and
    Beam take some 0.1 s for an analyzer, whether it measures one column or a thousand.

    Args:
      features: the features.
      x: their values, side by side, float32 `[batch, n]`, NaN where one is missing.

    Returns:
      The transformed features by name, float32 or int64, `[batch]` or `[batch, width]`.
    """
    places, at = {}, 0
    for feature in features:
        places[feature.name] = range(at, at + feature.width)
        at += feature.width
    columns = [feature for feature in features for _ in places[feature.name]]  # the feature of each column
    absent, x = tf.math.is_nan(x), _clipped(columns, x)
    numbers = [f.missing if isinstance(f.missing, float) else math.nan for f in columns]
    defaulted = x if all(map(math.isnan, numbers)) else tf.where(absent, tf.constant(numbers, tf.float32), x)
    filled = _filled_by_measurements(columns, defaulted)
    groups: dict[tuple[str, bool], list[Numeric]] = {}
    for feature in features:
        groups.setdefault((repr(feature.transform), feature.missing == "median"), []).append(feature)
    outputs: dict[str, Any] = {}
    for alike in groups.values():
        chosen = [i for f in alike for i in places[f.name]]
        tensors = [_columns(values, chosen) for values in (x, defaulted, filled)]
        if isinstance(alike[0].transform, Bucketize):
            outputs |= _bucketized(alike, alike[0].transform, *tensors[1:])
        else:
            outputs |= apart(_scaled([columns[i] for i in chosen], *tensors), [f.raw for f in alike])
    indicators = [f for f in features if f.indicator]
    if indicators:
        chosen = [i for f in indicators for i in places[f.name]]
        flags = apart(_columns(tf.cast(absent, tf.float32), chosen), [f.raw for f in indicators])
        outputs |= {f.indicator_name: flags[f.name] for f in indicators}
    return outputs


def apart(x: tf.Tensor, columns: Sequence[RawColumn]) -> dict[str, tf.Tensor]:
    """Splits `[batch, n]` by raw column: `[batch]`, or `[batch, width]` where a column has a width."""
    if all(column.width is None for column in columns):
        parts = tf.unstack(x, num=len(columns), axis=1)
    else:
        parts = tf.split(x, [column.width or 1 for column in columns], axis=1) if len(columns) > 1 else [x]
        parts = [part[:, 0] if c.width is None else part for part, c in zip(parts, columns, strict=True)]
    return {column.name: part for column, part in zip(columns, parts, strict=True)}


def _columns(x: tf.Tensor, chosen: Sequence[int]) -> tf.Tensor:
    return x if list(chosen) == list(range(x.shape[1])) else tf.gather(x, tf.constant(chosen), axis=1)


def _clipped(columns: Sequence[Numeric], x: tf.Tensor) -> tf.Tensor:
    """Values between the quantiles that their columns are clipped at; NaN stays, and columns without `clip`."""
    alike: dict[tuple[float, float], list[int]] = {}
    for i, feature in enumerate(columns):
        if feature.clip is not None:
            alike.setdefault(feature.clip, []).append(i)
    low, high = (tf.fill([len(columns)], bound) for bound in (-math.inf, math.inf))
    for clip, chosen in alike.items():
        parts, tail = columns[chosen[0]].clip_parts, min(share for share in (clip[0], 1 - clip[1]) if share > 0)
        cuts = _quantiles(_columns(x, chosen), parts, epsilon=min(QUANTILE_EPSILON, max(LEAST_EPSILON, tail / 10)))
        places = [[i] for i in chosen]
        if clip[0] > 0:
            low = tf.tensor_scatter_nd_update(low, places, cuts[:, round(clip[0] * parts) - 1])
        if clip[1] < 1:
            high = tf.tensor_scatter_nd_update(high, places, cuts[:, round(clip[1] * parts) - 1])
    # Not tf.clip_by_value, which need not keep NaN.
    return tf.where(x < low, low, tf.where(x > high, high, x)) if alike else x


def _filled_by_measurements(columns: Sequence[Numeric], x: tf.Tensor) -> tf.Tensor:
    """Missing values replaced by the mean or the median of the present ones, in the columns that say so.

    tf.Transform skips NaN, so that these are of the present values; a statistic of the filled ones would need another
    read of the data. `z_score` itself makes the mean 0.
    """
    fills = tf.fill([len(columns)], math.nan)
    by_mean = [i for i, f in enumerate(columns) if f.missing == "mean" and f.transform != "z_score"]
    if by_mean:
        means = tf.cast(_mean(_columns(x, by_mean)), tf.float32)
        fills = tf.tensor_scatter_nd_update(fills, [[i] for i in by_mean], means)
    by_median = [i for i, f in enumerate(columns) if f.missing == "median"]
    if by_median:
        medians = _quantiles(_columns(x, by_median), 2)[:, 0]
        fills = tf.tensor_scatter_nd_update(fills, [[i] for i in by_median], medians)
    return tf.where(tf.math.is_nan(x), fills, x) if by_mean or by_median else x


def _scaled(columns: Sequence[Numeric], x: tf.Tensor, defaulted: tf.Tensor, filled: tf.Tensor) -> tf.Tensor:
    """Columns that are scaled alike.

    Args:
      columns: the feature of each.
      x: as read, of which `min_max` takes the least and the greatest values.
      defaulted: with the schema's numbers for missing values, which `z_score` measures, too.
      filled: with all replacements, which is what is scaled.
    """
    match columns[0].transform:
        case "z_score" if columns[0].missing == "median":
            mean = tf.cast(_mean(defaulted), tf.float32)
            variance = tft.var(tf.cast(defaulted, tf.float64), reduce_instance_dims=False, name="var")
            deviation = tf.cast(tf.sqrt(variance), tf.float32)
            return (filled - mean) / tf.where(deviation > 0, deviation, 1.0)
        case "z_score":
            z = tf.cast(tft.scale_to_z_score(tf.cast(defaulted, tf.float64), elementwise=True), tf.float32)
            means = [feature.missing == "mean" for feature in columns]
            return tf.where(tf.math.is_nan(z) & tf.constant(means), 0.0, z) if any(means) else z
        case "min_max":
            absent = tf.math.is_nan(x)
            low = tft.min(tf.where(absent, x.dtype.max, x), reduce_instance_dims=False, name="min")
            high = tft.max(tf.where(absent, x.dtype.min, x), reduce_instance_dims=False, name="max")
            low = tf.where(low > high, 0.0, low)  # there is no value
            return (filled - low) / tf.where(high > low, high - low, 1.0)
        case "log":
            return tf.math.log1p(filled)
        case Scale(scale=(low, high)):
            return (filled - low) / (high - low)
        case _:
            return tf.identity(filled)


def _bucketized(
    features: Sequence[Numeric], transform: Bucketize, defaulted: tf.Tensor, filled: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The buckets of features that are bucketized alike.

    By feature, since tf.Transform declares the range of the ids for the very tensor that `apply_buckets` makes.
    """
    values = apart(filled, [feature.raw for feature in features])
    if isinstance(transform.bucketize, tuple):
        boundaries = tf.constant([transform.bucketize], tf.float32)
        return {name: tft.apply_buckets(x, boundaries) for name, x in values.items()}
    boundaries = iter(tf.split(_merged(_quantiles(defaulted, transform.bucketize)), filled.shape[1]))
    buckets = {}
    for name, x in values.items():
        if x.shape.rank == 1:
            buckets[name] = tft.apply_buckets(x, next(boundaries))
        else:
            buckets[name] = tf.stack(
                [tft.apply_buckets(column, next(boundaries)) for column in tf.unstack(x, axis=1)], axis=1
            )
    return buckets


def _merged(boundaries: tf.Tensor) -> tf.Tensor:
    """Boundaries, `[n, parts - 1]`, without equal ones: these become one bucket's two ends.

    A number that is more than one boundary is that of many rows, such as the zeros of a count. These are then a bucket,
    and the numbers above them another.
    """
    repeated = tf.equal(boundaries[:, 1:], boundaries[:, :-1])
    following = tf.math.nextafter(boundaries, tf.fill(tf.shape(boundaries), math.inf))
    # TensorFlow takes subnormal numbers for 0.
    following = tf.where(tf.abs(boundaries) < SMALLEST_NORMAL, SMALLEST_NORMAL, following)
    return tf.concat([boundaries[:, :1], tf.where(repeated, following[:, 1:], boundaries[:, 1:])], axis=1)


def _mean(x: tf.Tensor) -> tf.Tensor:
    """Of each column, float64 `[n]`, 0 where there is no value.

    Summed in float64, so that it does not depend on the number of rows or on how they are batched.
    """
    mean = tft.mean(tf.cast(x, tf.float64), reduce_instance_dims=False, name="mean")
    return tf.where(tf.math.is_nan(mean), tf.zeros_like(mean), mean)


def _quantiles(x: tf.Tensor, count: int, *, epsilon: float = QUANTILE_EPSILON) -> tf.Tensor:
    """Boundaries between `count` parts of each column, float32 `[n, count - 1]`; 0 where there is no value.

    A row of zeros that weighs next to nothing goes with each batch: tf.Transform fails where a column has no value.
    """
    values = tf.concat([x, tf.zeros([1, x.shape[1]])], axis=0)
    weights = tf.concat([tf.ones([tf.shape(x)[0]]), [NEXT_TO_NOTHING]], axis=0)
    return tft.quantiles(values, count, epsilon=epsilon, weights=weights, reduce_instance_dims=False)
