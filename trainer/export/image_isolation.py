"""Images of one request, each seen by itself: what is wrong with one fails no other.

TensorFlow has one way to go on behind an op that fails: a `tf.data` pipeline that leaves the element out. It prepares
its function anew for every request, which takes 0.2 s for an ingest graph and some milliseconds for a small one. So a
small one looks first. Where it finds nothing but JPEGs and PNGs of ordinary sizes that decode, nothing can fail, and
the ingest graph is called directly. Where it is in doubt of one of them, all go the way on which an image may fail.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from schemas.images.header import JPEG, JPEG_SCANS, PNG
from schemas.spec.image_options import Exact, ImageOptions

SIDE_BY_SIDE = 8  # images of a request that are decoded at once: a large one takes some 100 MB
_ELONGATED = 4  # a longer side of more than so many shorter ones is not ordinary

See = Callable[[tf.Tensor], tf.Tensor]


def map_isolated(files: tf.Tensor, see: See, spec: tf.TensorSpec, images: ImageOptions) -> tuple[tf.Tensor, tf.Tensor]:
    """What `see` makes of each file, whatever the others are.

    Args:
      files: string `[batch]`.
      see: string `[]` -> `spec`; raises on what is not taken.
      spec: of a fixed shape.
      images: what is taken.

    Returns:
      `[batch, ...]`, zeros for what is not taken; and bool `[batch]`, what is.
    """
    _, ordinary = map_ignoring_errors(files, lambda data: is_ordinary(data, images), tf.TensorSpec([], tf.bool))

    def directly() -> tuple[tf.Tensor, tf.Tensor]:
        made = tf.map_fn(see, files, fn_output_signature=spec, parallel_iterations=SIDE_BY_SIDE)
        return made, tf.ones_like(files, tf.bool)

    return tf.cond(tf.reduce_all(ordinary), directly, lambda: map_ignoring_errors(files, see, spec))


def map_ignoring_errors(files: tf.Tensor, see: See, spec: tf.TensorSpec) -> tuple[tf.Tensor, tf.Tensor]:
    """As `map_isolated`, for any `see`: a file that it raises on is left out."""
    count = tf.shape(files, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), files))
    made = numbered.map(lambda i, data: (i, see(data)), num_parallel_calls=SIDE_BY_SIDE, deterministic=True)
    options = tf.data.Options()  # what tf.data does to its graph, it would do for each request, and at length
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    whole = made.ignore_errors().batch(tf.maximum(count, 1)).with_options(options)  # one batch, or none
    nothing = tf.zeros([0], tf.int64), tf.zeros([0, *spec.shape], spec.dtype)
    places, results = whole.reduce(nothing, lambda _, batch: batch)
    indices = places[:, tf.newaxis]
    spread = tf.scatter_nd(indices, results, tf.stack([count, *spec.shape]))
    return tf.ensure_shape(spread, [None, *spec.shape]), tf.scatter_nd(indices, tf.ones_like(places, tf.bool), [count])


def is_ordinary(data: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """True for a JPEG or PNG, string `[]`, that an ingest graph takes for sure; raises on all that it may not take.

    A JPEG is decoded at an eighth of its size, which goes through all of its data.
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
    return tf.size(decoded) > 0  # of its pixels, so that nothing leaves the decoding out


def _is_ordinary_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Whether int32 `[2]` are sides that no limit on pixels or proportions is near to, before or after resizing."""
    to = max(images.resize.exact) if isinstance(images.resize, Exact) else images.resize.shorter
    sides = tf.cast(sides, tf.int64)
    short, long = tf.reduce_min(sides), tf.reduce_max(sides)
    resized = _ELONGATED * to * tf.maximum(long, _ELONGATED * to)
    small = (long <= images.max_pixels) & (short * long <= images.max_pixels) & (resized <= images.max_pixels)
    return (short > 0) & (long <= _ELONGATED * short) & small
