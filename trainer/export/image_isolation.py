"""Isolates the images of a request from each other, so that an invalid image does not fail the others.

The only way in TensorFlow to continue after a failing op is a `tf.data` pipeline that drops the element. It prepares
its function again for every request, which takes 0.2 s for an ingest graph, but only milliseconds for a small graph. So
a small graph checks the images first. If all are JPEGs and PNGs of ordinary sizes that decode, nothing can fail, and
the ingest graph is called directly. Otherwise, all images go through the slow pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from schemas.images.header import JPEG, JPEG_SCANS, PNG
from schemas.spec.image_options import Exact, ImageOptions

PARALLEL_IMAGES = 8  # decoded at once in a request: a large image takes some 100 MB
_MAX_ASPECT_RATIO = 4  # of an ordinary image

ImageFn = Callable[[tf.Tensor], tf.Tensor]


def map_isolated(
    files: tf.Tensor, image_fn: ImageFn, spec: tf.TensorSpec, images: ImageOptions
) -> tuple[tf.Tensor, tf.Tensor]:
    """Applies `image_fn` to each file, independently of the others.

    Args:
      files: string `[batch]`.
      image_fn: string `[]` -> `spec`; raises for a file that it does not accept.
      spec: has a fixed shape.
      images: the limits of accepted images.

    Returns:
      `[batch, ...]`, with zeros for files that are not accepted; and bool `[batch]`, true for accepted files.
    """
    _, ordinary = map_ignoring_errors(files, lambda data: is_ordinary(data, images), tf.TensorSpec([], tf.bool))

    def directly() -> tuple[tf.Tensor, tf.Tensor]:
        made = tf.map_fn(image_fn, files, fn_output_signature=spec, parallel_iterations=PARALLEL_IMAGES)
        return made, tf.ones_like(files, tf.bool)

    return tf.cond(tf.reduce_all(ordinary), directly, lambda: map_ignoring_errors(files, image_fn, spec))


def map_ignoring_errors(files: tf.Tensor, image_fn: ImageFn, spec: tf.TensorSpec) -> tuple[tf.Tensor, tf.Tensor]:
    """The same as `map_isolated`, but always with the slow pipeline, which drops files that `image_fn` raises for."""
    count = tf.shape(files, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), files))
    made = numbered.map(lambda i, data: (i, image_fn(data)), num_parallel_calls=PARALLEL_IMAGES, deterministic=True)
    options = tf.data.Options()  # tf.data would optimize its graph in each request, which is slow
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    all_in_one = made.ignore_errors().batch(tf.maximum(count, 1)).with_options(options)  # one batch, or none
    nothing = tf.zeros([0], tf.int64), tf.zeros([0, *spec.shape], spec.dtype)
    places, results = all_in_one.reduce(nothing, lambda _, batch: batch)
    indices = places[:, tf.newaxis]
    spread = tf.scatter_nd(indices, results, tf.stack([count, *spec.shape]))
    return tf.ensure_shape(spread, [None, *spec.shape]), tf.scatter_nd(indices, tf.ones_like(places, tf.bool), [count])


def is_ordinary(data: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """True for a JPEG or PNG, string `[]`, that every ingest graph accepts; raises for a file that may not be accepted.

    Decodes a JPEG at an eighth of its size, which still reads all of its data.
    """
    is_jpeg, is_png = (tf.equal(tf.strings.substr(data, 0, len(magic)), magic) for magic in (JPEG, PNG))

    def png_sides() -> tf.Tensor:
        return tf.io.decode_raw(tf.strings.substr(data, 16, 8), tf.int32, little_endian=False)

    sides = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(data)[:2], png_sides)
    scans = tf.raw_ops.StringSplitV2(input=[data], sep=b"\xff\xda", maxsplit=JPEG_SCANS + 1).values
    few = is_png | (tf.size(scans) <= JPEG_SCANS)
    sure = (is_jpeg | is_png) & few & _is_ordinary_size(sides, images)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=sure, data=["not an ordinary image"])]):
        decoded = tf.io.decode_jpeg(data, channels=3, ratio=8)  # of a PNG, too
    return tf.size(decoded) > 0  # depends on the pixels, so that decoding is not optimized away


def _is_ordinary_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Whether sides, int32 `[2]`, are within all limits on pixels and proportions, before and after resizing."""
    to = max(images.resize.exact) if isinstance(images.resize, Exact) else images.resize.shorter
    sides = tf.cast(sides, tf.int64)
    short, long = tf.reduce_min(sides), tf.reduce_max(sides)
    resized = _MAX_ASPECT_RATIO * to * tf.maximum(long, _MAX_ASPECT_RATIO * to)
    small = (long <= images.max_pixels) & (short * long <= images.max_pixels) & (resized <= images.max_pixels)
    return (short > 0) & (long <= _MAX_ASPECT_RATIO * short) & small
