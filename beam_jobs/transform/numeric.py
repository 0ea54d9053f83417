"""Numeric features: missing values are filled, then all are scaled or bucketized.

All statistics are computed in one pass, each for all columns at once. Arrow columns become the dense tensors that
tf.Transform's graphs take.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
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


PACK = 64  # features
QUANTILE_EPSILON = 0.001  # tft.quantiles sketches: a rank is off by this share of the rows at most


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the train split tells of the columns of a numeric feature; None where its transform does not ask.

    Each statistic is `[n]` of the feature's n columns, so that it broadcasts to its values, `[batch]` or `[batch, n]`.

    Attributes:
      mean: float64; 0 where there is no value.
      deviation: the standard deviation, float64; 1 where all values are equal or there is none.
      low: the least value, float32; 0 where there is none.
      span: the greatest value less the least one, float32; 1 where all values are equal.
      median: float32, within `QUANTILE_EPSILON` in rank.
      boundaries: of `bucketize: count`, float32 `[n, count - 1]`.
    """

    mean: tf.Tensor | None = None
    deviation: tf.Tensor | None = None
    low: tf.Tensor | None = None
    span: tf.Tensor | None = None
    median: tf.Tensor | None = None
    boundaries: tf.Tensor | None = None

    @classmethod
    def of_all(cls, parts: Sequence[Measured]) -> Measured:
        """The statistics of features side by side, of which each has the same."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in dataclasses.fields(cls) if getattr(parts[0], field.name) is not None]
        return cls(**{name: tf.concat([getattr(part, name) for part in parts], axis=0) for name in names})


def transform_numbers(features: Sequence[Numeric], raw: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """Transforms numeric features, and adds the indicators that they declare.

    If the schema declares no value for missing numbers, NaN passes through: a client that sends NaN gets NaN back.

    Args:
      features: the features.
      raw: their values by name, float32 `[batch]` or `[batch, n]`, NaN where one is missing.

    Returns:
      The transformed features by name, in the shapes of their values.
    """
    outputs, columns = {}, {}
    for feature in features:
        x = raw[feature.name]
        if feature.indicator:
            outputs[feature.indicator_name] = tf.cast(tf.math.is_nan(x), tf.float32)
        if isinstance(feature.missing, float):
            x = tf.where(tf.math.is_nan(x), tf.cast(feature.missing, tf.float32), x)
        columns[feature.name] = x
    measured = measure(features, columns, raw)
    for pack in packs_of(features):
        some = [columns[feature.name] for feature in pack]
        scaled = scale_numeric(pack[0], side_by_side(some), Measured.of_all([measured[f.name] for f in pack]))
        outputs |= dict(zip([feature.name for feature in pack], apart(scaled, like=some), strict=True))
    return outputs


def packs_of(features: Sequence[Numeric]) -> list[list[Numeric]]:
    """Features that are scaled alike, `PACK` at most: side by side they take the ops of one.

    There is a bound since tf.Transform walks back from each output to all inputs that it depends on.
    """
    alike: dict[Any, list[Numeric]] = {}
    for feature in features:
        filled = "number" if isinstance(feature.missing, float) else feature.missing
        alike.setdefault((repr(feature.transform), filled), []).append(feature)
    return [some[i : i + PACK] for some in alike.values() for i in range(0, len(some), PACK)]


def width_of(x: tf.Tensor) -> int:
    """How many columns `[batch]` or `[batch, n]` has."""
    return 1 if x.shape.rank == 1 else int(x.shape[1])


def side_by_side(columns: Sequence[tf.Tensor]) -> tf.Tensor:
    """Tensors `[batch]` and `[batch, n]` as one, `[batch, sum of their widths]`; one alone as it is."""
    if len(columns) == 1:
        return columns[0]
    if all(x.shape.rank == 1 for x in columns):
        return tf.stack(columns, axis=1)
    return tf.concat([x[:, tf.newaxis] if x.shape.rank == 1 else x for x in columns], axis=1)


def apart(x: tf.Tensor, *, like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What `side_by_side` has put together, in the shapes of `like`."""
    if len(like) == 1:
        return [x]
    if all(column.shape.rank == 1 for column in like):
        return tf.unstack(x, num=len(like), axis=1)
    parts = tf.split(x, [width_of(column) for column in like], axis=1)
    return [part[:, 0] if column.shape.rank == 1 else part for part, column in zip(parts, like, strict=True)]


def measure(
    features: Sequence[Numeric], columns: Mapping[str, tf.Tensor], raw: Mapping[str, tf.Tensor]
) -> dict[str, Measured]:
    """What each feature's transform asks of the train split, by the name of the feature.

    Each statistic but quantiles is one analyzer for all columns of the table that need it: tf.Transform and Beam take
    some 0.1 s for an analyzer, whether it measures one column or a thousand. tf.Transform skips NaN: a mean or a median
    that fills missing values is of the present ones; one of the filled values would need another read of the data.

    Args:
      features: the features.
      columns: their values by name, with the numbers that the schema gives for missing ones.
      raw: without them, which the least and the greatest value are taken of.
    """
    found: dict[str, dict[str, tf.Tensor]] = {feature.name: {} for feature in features}

    def of(
        asking: Sequence[Numeric],
        statistic: Callable[[tf.Tensor], Mapping[str, tf.Tensor]],
        values: Mapping[str, tf.Tensor] = columns,
    ) -> None:
        if not asking:
            return
        some = [values[feature.name] for feature in asking]
        together = side_by_side([x[:, tf.newaxis] if len(some) == x.shape.rank == 1 else x for x in some])
        widths = [width_of(x) for x in some]
        for name, measured in statistic(together).items():
            for feature, part in zip(asking, tf.split(measured, widths), strict=True):
                found[feature.name][name] = part

    of([f for f in features if f.transform == "z_score" or f.missing == "mean"], _mean)
    of([f for f in features if f.transform == "z_score"], _deviation)
    of([f for f in features if f.transform == "min_max"], _range, raw)
    of([f for f in features if f.missing == "median"], _median)
    bucketized: dict[int, list[Numeric]] = {}
    for feature in features:
        if isinstance(feature.transform, Bucketize) and isinstance(feature.transform.bucketize, int):
            bucketized.setdefault(feature.transform.bucketize, []).append(feature)
    for count, some in bucketized.items():
        of(some, functools.partial(_boundaries, count=count))
    return {name: Measured(**statistics) for name, statistics in found.items()}


def _mean(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Summed in float64, so that it does not depend on the number of rows or on how they are batched."""
    mean = tft.mean(tf.cast(x, tf.float64), reduce_instance_dims=False, name="mean")
    return {"mean": tf.where(tf.math.is_nan(mean), tf.zeros_like(mean), mean)}  # NaN: there is no value


def _deviation(x: tf.Tensor) -> dict[str, tf.Tensor]:
    deviation = tf.sqrt(tft.var(tf.cast(x, tf.float64), reduce_instance_dims=False, name="var"))
    return {"deviation": tf.where(deviation > 0, deviation, 1.0)}


def _range(x: tf.Tensor) -> dict[str, tf.Tensor]:
    absent = tf.math.is_nan(x)
    low = tft.min(tf.where(absent, x.dtype.max, x), reduce_instance_dims=False, name="min")
    high = tft.max(tf.where(absent, x.dtype.min, x), reduce_instance_dims=False, name="max")
    low = tf.where(low > high, 0.0, low)  # there is no value
    return {"low": low, "span": tf.where(high > low, high - low, 1.0)}


def _median(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"median": _boundaries(x, count=2)["boundaries"][:, 0]}


def _boundaries(x: tf.Tensor, *, count: int) -> dict[str, tf.Tensor]:
    """An analyzer for each column: one for all fails where a column has no value at all."""
    columns = [tft.quantiles(column, count, epsilon=QUANTILE_EPSILON) for column in tf.unstack(x, axis=1)]
    return {"boundaries": tf.concat(columns, axis=0)}


def scale_numeric(feature: Numeric, x: tf.Tensor, measured: Measured) -> tf.Tensor:
    """Fills missing values with the mean or the median of the present ones, and scales all."""
    filled = x
    if feature.missing == "median":
        filled = tf.where(tf.math.is_nan(x), measured.median, x)
    elif feature.missing == "mean" and feature.transform != "z_score":
        filled = tf.where(tf.math.is_nan(x), tf.cast(measured.mean, tf.float32), x)
    match feature.transform:
        case "z_score" if feature.missing == "median":
            return (filled - tf.cast(measured.mean, tf.float32)) / tf.cast(measured.deviation, tf.float32)
        case "z_score":
            z = tf.cast((tf.cast(x, tf.float64) - measured.mean) / measured.deviation, tf.float32)
            return tf.where(tf.math.is_nan(x), 0.0, z) if feature.missing == "mean" else z
        case "min_max":
            return (filled - measured.low) / measured.span
        case "log":
            return tf.math.log1p(filled)
        case Scale(scale=(low, high)):
            return (filled - low) / (high - low)
        case Bucketize(bucketize=tuple(boundaries)):
            return tft.apply_buckets(filled, tf.constant([boundaries], tf.float32))
        case Bucketize():
            columns = [filled] if filled.shape.rank == 1 else tf.unstack(filled, axis=1)
            boundaries = tf.split(measured.boundaries, len(columns))
            buckets = [tft.apply_buckets(*pair) for pair in zip(columns, boundaries, strict=True)]
            return buckets[0] if filled.shape.rank == 1 else tf.stack(buckets, axis=1)
        case _:
            return tf.identity(filled)
