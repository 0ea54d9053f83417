"""Numeric features: missing values are filled, then all are scaled or bucketized.

All statistics are those of the present values, and are computed in one pass: tf.Transform would read the data again for
a statistic of filled values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.spec.features import Bucketize, Numeric, Scale

QUANTILE_EPSILON = 0.001  # tft.quantiles sketches: a rank is off by this share of the rows at most


def z_scores(features: Sequence[Numeric], inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The z-scores of all features that are scaled so, float32 in the shape of each one's values; NaN passes through.

    They are one analyzer of all columns beside each other. An analyzer of each would be several stages of the pipeline,
    and the time that Beam takes to plan one grows with the square of its stages: minutes for 1,000 features.
    """
    scaled = [feature for feature in features if feature.transform == "z_score" and feature.missing != "median"]
    if not scaled:
        return {}
    values = {feature.name: filled_with_constant(feature, inputs[feature.name]) for feature in scaled}
    single = {name: x for name, x in values.items() if x.shape.rank == 1}  # few ops for all, since each takes time, too
    vectors = {name: x for name, x in values.items() if x.shape.rank != 1}
    parts = ([tf.stack(list(single.values()), axis=1)] if single else []) + list(vectors.values())
    wide = tf.cast(tf.concat(parts, axis=1), tf.float64)  # see `mean_of`
    z = tf.cast(tft.scale_to_z_score(wide, elementwise=True, name="z_scores"), tf.float32)
    found = tf.split(z, [part.shape[1] for part in parts], axis=1)
    columns = tf.unstack(found.pop(0), axis=1) if single else []
    return dict(zip([*single, *vectors], [*columns, *found], strict=True))


def filled_with_constant(feature: Numeric, x: tf.Tensor) -> tf.Tensor:
    """The values with the number that the schema has for missing ones, if it has one."""
    if not isinstance(feature.missing, float | int):
        return x
    return tf.where(tf.math.is_nan(x), tf.cast(feature.missing, tf.float32), x)


def transform_numeric(feature: Numeric, x: tf.Tensor, z: tf.Tensor | None) -> dict[str, Any]:
    """Transforms the feature's values, and adds its indicator if it declares one.

    If the schema declares no value for missing numbers, NaN passes through: a client that sends NaN gets NaN back.

    Args:
      feature: the feature.
      x: its values, float32 `[batch]` or `[batch, n]`.
      z: their z-scores (`z_scores`), if it is scaled by them.
    """
    outputs = {}
    if feature.indicator:
        outputs[feature.indicator_name] = tf.cast(tf.math.is_nan(x), tf.float32)
    if z is None:
        outputs[feature.name] = scale_numeric(feature, filled_with_constant(feature, x), tf.math.is_nan(x))
    else:
        outputs[feature.name] = tf.where(tf.math.is_nan(x), 0.0, z) if feature.missing == "mean" else z
    return outputs


def scale_numeric(feature: Numeric, x: tf.Tensor, absent: tf.Tensor) -> tf.Tensor:
    """Scales the values, and fills missing ones with the mean or the median of the present ones.

    Every statistic is computed on `x`, where tf.Transform skips NaN: a statistic of the filled values would need
    another read of the data.
    """
    name, filled = feature.name, x
    if feature.missing == "median":
        filled = restack([tf.where(tf.math.is_nan(column), median(column), column) for column in unstack(x)], x)
    elif feature.missing == "mean":
        filled = tf.where(absent, mean_of(x, name), x)
    match feature.transform:
        case "z_score":  # filled with medians; others are scaled by `z_scores`
            mean, deviation = mean_of(x, name), deviation_of(x, name)
            return tf.where(deviation > 0, (filled - mean) / tf.where(deviation > 0, deviation, 1.0), filled - mean)
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
