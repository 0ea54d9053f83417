"""Resizing as `tf.image.resize(method="bilinear", antialias=True)` does it, to the bit, in half of its time.

Its op, ScaleAndTranslate, weighs whole rows first and then columns, pixel by pixel, three channels at a time, which is
most of its time. Here each direction is a call of its own, on an image of one column whose one pixel holds a whole row
as its channels: the sums and their order stay what they are, and become long vectors.
"""

from __future__ import annotations

import tensorflow as tf


def resize(image: tf.Tensor, size: tf.Tensor, extent: tf.Tensor | None = None) -> tf.Tensor:
    """Bilinear with antialias, halves to the even: uint8 `[size[0], size[1], 3]` of uint8 `[height, width, 3]`.

    Args:
      image: what is resized.
      size: the new height and width, int32 `[2]`.
      extent: float32 `[2]`, how much of height and width the picture takes, where its last pixels are cut by its edge:
        a JPEG of 1,001 rows decoded at 1/8 has 126 rows, and a picture of 125.125. None: all of them.
    """
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    if extent is None:
        extent = tf.cast(tf.shape(image)[:2], tf.float32)
    rows = resize_rows(tf.reshape(image, [height, 3 * width]), size[0], extent[0])
    columns = tf.transpose(tf.reshape(rows, [size[0], width, 3]), [1, 0, 2])
    columns = resize_rows(tf.reshape(columns, [width, 3 * size[0]]), size[1], extent[1])
    pixels = tf.transpose(tf.reshape(columns, [size[1], size[0], 3]), [1, 0, 2])
    # Weights of this kernel are positive and add up to 1, so that rounding leaves nothing below 0 or above 255.
    return tf.cast(tf.round(pixels), tf.uint8)


def resize_rows(rows: tf.Tensor, to: tf.Tensor, extent: tf.Tensor) -> tf.Tensor:
    """float32 `[to, m]` of uint8 or float32 `[height, m]`, of which `extent` rows are the picture."""
    height, m = tf.shape(rows)[0], tf.shape(rows)[1]
    resized = tf.raw_ops.ScaleAndTranslate(
        images=tf.reshape(rows, [1, height, 1, m]),
        size=tf.stack([to, 1]),
        scale=tf.stack([tf.cast(to, tf.float32) / extent, 1.0]),
        translation=tf.zeros([2]),
        kernel_type="triangle",
        antialias=True,
    )
    return tf.reshape(resized, [to, m])
