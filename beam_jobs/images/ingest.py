"""The ingest graph: an image file's bytes -> the canonical image that is stored, in TensorFlow ops.

It is stateless and works on one image. The job runs it on every file and a served model on every request, so both see
the same pixels. It raises InvalidArgumentError for a file that it does not accept. `schemas.images.header` checks the
same limits in plain Python, so a job's rejects have their reasons before anything is decoded.

What decoding does, on purpose:

- The format is detected from the first bytes, not from the file name.
- EXIF orientation is ignored, in training and in serving; an alpha channel is dropped, not blended.
- CMYK and YCCK JPEGs are converted without a colour profile; the inverted inks that Adobe stores are inverted back.
- 16 bits become 8, a palette becomes colours, one channel becomes three equal ones.
- A truncated file is an error, never padded.
- A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if that is at least `downscale` times the stored size.

Resizing gives the result of `tf.image.resize(method="bilinear", antialias=True)`, bit by bit, in half the time. That
op, ScaleAndTranslate, resizes rows and then columns, pixel by pixel, with three channels at a time; that takes most of
its time. Here each direction is a call of its own, on an image of one column whose pixels have a whole row as their
channels. The sums and their order are the same, but run over long vectors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from schemas.images.header import JPEG, JPEG_SCANS, PNG, RATIOS, Format
from schemas.spec.images import ENCODED, FORMAT, FORMATS, HEIGHT, LONGEST_SIDE, WIDTH, Exact, ImageOptions


def check(condition: tf.Tensor, *values: Any) -> tf.Operation:
    """Fails with the values unless the condition holds: one op, where `tf.debugging.Assert` makes a conditional."""
    return tf.raw_ops.Assert(condition=condition, data=values)


def target_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Computes the size after resizing, int32 `[2]` from integer `[2]`, by the rule of `schemas.spec.images`."""
    if isinstance(images.resize, Exact):
        return tf.constant(images.resize.exact)
    sides = tf.cast(sides, tf.int64)
    short = tf.reduce_min(sides)
    return tf.cast((2 * images.resize.shorter * sides + short) // (2 * short), tf.int32)


def resize(image: tf.Tensor, size: tf.Tensor, extent: tf.Tensor | None = None) -> tf.Tensor:
    """Resizes, bilinear with antialias, halves rounded to even: uint8 `[height, width, 3]` to `[size[0], size[1], 3]`.

    Args:
      image: the image to resize.
      size: the new height and width, int32 `[2]`.
      extent: float32 `[2]`, the height and width of the picture, which may end within the last row or column: a JPEG of
        1,001 rows decoded at 1/8 has 126 rows, of which the picture covers 125.125. None: it covers all of them.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    scale = tf.cast(size, tf.float32) / tf.cast(tf.shape(image)[:2] if extent is None else extent, tf.float32)
    rows = resize_rows(tf.reshape(image, [height, 3 * width]), size[0], scale[0])
    # A matrix is transposed faster than an image of three channels, and what is rounded to bytes faster than floats.
    columns = tf.reshape(tf.transpose(rows), [width, 3 * size[0]])
    columns = resize_rows(columns, size[1], scale[1])
    # The kernel's weights are positive and add up to 1, so no value is below 0 or above 255.
    pixels = tf.reshape(tf.cast(tf.round(columns), tf.uint8), [3 * size[1], size[0]])
    return tf.reshape(tf.transpose(pixels), [size[0], size[1], 3])


def resize_rows(rows: tf.Tensor, to: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Resizes rows at a scale: uint8 or float32 `[height, m]` to float32 `[to, m]`."""
    height, m = tf.unstack(tf.shape(rows))
    resized = tf.raw_ops.ScaleAndTranslate(
        images=tf.reshape(rows, [1, height, 1, m]),
        size=tf.stack([to, 1]),
        scale=tf.stack([scale, 1.0]),
        translation=tf.zeros([2]),
        kernel_type="triangle",
        antialias=True,
    )
    return tf.reshape(resized, [to, m])


Decoded = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def decode(data: tf.Tensor, images: ImageOptions, file_format: Format | None = None) -> Decoded:
    """Checks the dimensions in the header, then decodes a file's bytes.

    Args:
      data: the bytes, string `[]`.
      images: how images are stored.
      file_format: that of the first bytes, where it is known; the graph then has no part for another one.

    Returns:
      The image, uint8 `[height, width, 3]`; its height and width after resizing, int32 `[2]`; and those of the picture
      in it, float32 `[2]`: a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size (`schemas.images.header`), and 1,001
      rows at 1/8 are 126, of which the picture covers 125.125.
    """

    def starts(magic: bytes) -> tf.Tensor:
        return tf.equal(tf.strings.substr(data, 0, len(magic)), magic)

    def unscaled(image: tf.Tensor) -> Decoded:
        sides = tf.shape(image)[:2]
        return tf.ensure_shape(image, [None, None, 3]), target_size(sides, images), tf.cast(sides, tf.float32)

    def jpeg() -> Decoded:
        sides = tf.io.extract_jpeg_shape(data)[:2]
        with tf.control_dependencies([check_scans(data)]):
            return scaled_jpeg(data, sides, checked_size(sides, images), images.downscale)

    def png() -> Decoded:
        sides = tf.stack([_integer(data, 20), _integer(data, 16)])
        with tf.control_dependencies([checked_size(sides, images)]):
            return unscaled(tf.io.decode_png(data, channels=3))

    def unknown() -> Decoded:
        with tf.control_dependencies([check(tf.constant(False), "not_an_image: JPEG and PNG are read")]):
            return unscaled(tf.zeros([1, 1, 3], tf.uint8))

    if file_format is not None:
        return jpeg() if file_format == "jpeg" else png()
    image, size, extent = tf.case([(starts(JPEG), jpeg), (starts(PNG), png)], default=unknown)
    return image, size, extent


def scaled_jpeg(data: tf.Tensor, sides: tf.Tensor, size: tf.Tensor, downscale: int) -> Decoded:
    """As `decode`, for a JPEG of height and width `sides`; the ratio is `schemas.images.header.decoding_ratio`."""

    def decoded(ratio: int) -> Callable[[], tf.Tensor]:
        return lambda: tf.io.decode_jpeg(data, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")

    ratios = (1, *reversed(RATIOS))
    # Ratios of 2, 4 and 8 fit one after the other.
    fits = tf.reduce_min(sides // (downscale * size)) >= tf.constant(ratios[1:])
    index = tf.reduce_sum(tf.cast(fits, tf.int32))
    image = tf.switch_case(index, [decoded(ratio) for ratio in ratios])
    ratio = tf.cast(tf.bitwise.left_shift(1, index), tf.float32)
    return tf.ensure_shape(image, [None, None, 3]), size, tf.cast(sides, tf.float32) / ratio


def checked_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """`target_size`; fails for more than `max_pixels`, and for proportions whose resizing would need more than that."""
    sides = tf.cast(sides, tf.int64)
    size = target_size(tf.maximum(sides, 1), images)
    small = (tf.reduce_min(sides) > 0) & (tf.reduce_prod(sides) <= images.max_pixels)
    # Rows are resized first, to an image of the new height and the wider of both widths.
    widest = tf.maximum(tf.cast(size, tf.int64), sides * [0, 1])
    fits = (tf.reduce_prod(widest) <= images.max_pixels) & (tf.reduce_max(size) <= LONGEST_SIDE)
    reason = tf.where(small, "too_elongated", "too_many_pixels")
    with tf.control_dependencies([check(small & fits, reason, "height and width:", sides[0], sides[1])]):
        return tf.identity(size)


def check_scans(data: tf.Tensor) -> tf.Operation:
    """Fails for a JPEG of very many scans: each is a pass over the whole image."""
    # Splitting takes a tenth of the time of comparing byte by byte, which took a third of a photo's decoding time.
    parts = tf.raw_ops.StringSplitV2(input=[data], sep=b"\xff\xda", maxsplit=JPEG_SCANS + 1).values
    return check(tf.size(parts) <= JPEG_SCANS + 1, "too_many_scans: JPEG of more than", JPEG_SCANS)


def _head(data: tf.Tensor) -> tf.Tensor:
    """The first bytes, followed by zeros: `substr` beyond the end puts the whole file into its error message."""
    return tf.strings.join([tf.strings.substr(data, 0, 128), b"\0" * 128])


def _integer(data: tf.Tensor, place: int) -> tf.Tensor:
    """A big-endian integer of the header, int32 scalar; 0 beyond the file's end."""
    return tf.io.decode_raw(tf.strings.substr(_head(data), place, 4), tf.int32, little_endian=False)[0]


INPUT = "image_bytes"


class Ingest(tf.Module):
    """The graph for one way of storing images, as functions of a file's bytes.

    image: string `[]` -> the canonical pixels before they are encoded, uint8 `[height, width, 3]`.
    record: string `[]` -> the file as it is stored: `image/encoded` and `image/format` strings, `image/height` and
        `image/width` int64.
    batch: `image_bytes` string `[batch]` -> as `record`, each `[batch]`. One file that is not accepted fails all.
    """

    def __init__(self, images: ImageOptions) -> None:
        super().__init__(name="ingest")
        scalar = [tf.TensorSpec([], tf.string, name=INPUT)]
        many = [tf.TensorSpec([None], tf.string, name=INPUT)]

        def record(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            return encode(self.image(image_bytes), images)

        def batch(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            strings, sizes = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
            signature = {ENCODED: strings, FORMAT: strings, HEIGHT: sizes, WIDTH: sizes}
            return tf.map_fn(self.record, image_bytes, fn_output_signature=signature, parallel_iterations=16)

        def graph(function: Callable[..., Any], inputs: list[tf.TensorSpec]) -> Any:
            return tf.function(function, input_signature=inputs, autograph=False)

        self.image = graph(lambda image_bytes: canonical(image_bytes, images), scalar)
        self.record = graph(record, scalar)
        self.batch = graph(batch, many)


@functools.lru_cache(maxsize=2)  # the formats
def stored_and_pixels(images: ImageOptions, file_format: Format) -> Callable[[np.ndarray], tuple[bytes, np.ndarray]]:
    """Returns the part of the graph for a format: a file's bytes, an object `[]`, to `image/encoded` and pixels.

    It runs in the calling thread, and several threads may call it at once. (A `tf.function` runs its ops in a pool,
    whose threads spin while they wait.) Raises InvalidArgumentError or another OpError.
    """
    with tf.Graph().as_default() as graph:
        image_bytes = tf.compat.v1.placeholder(tf.string, [])
        image = canonical(image_bytes, images, file_format)
        outputs = [encode(image, images)[ENCODED], image]
    return _runner(graph, image_bytes, outputs)


# A file's bytes and their format -> `image/encoded`, height, width, and the canonical pixels where they are to be
# measured. Raises InvalidArgumentError or another OpError.
StoreImage: TypeAlias = Callable[[bytes, Format], tuple[bytes, int, int, "np.ndarray | None"]]


def new_ingest(images: ImageOptions) -> StoreImage:
    """Builds the ingest graph of a new dataset, as a job runs it."""
    building = threading.Lock()

    def store(data: bytes, file_format: Format) -> tuple[bytes, int, int, np.ndarray]:
        with building:  # of each format once, in whichever thread meets it first
            run = stored_and_pixels(images, file_format)
        encoded, pixels = run(np.array(data, object))
        return encoded, pixels.shape[0], pixels.shape[1], pixels

    return store


@functools.lru_cache(maxsize=1)
def saved_ingest(path: str) -> StoreImage:
    """Loads the graph that `save_ingest` wrote for a dataset.

    It stores new images of that dataset as the others are stored. The dataset's channels are already measured, so it
    returns no pixels to measure.
    """
    with tf.Graph().as_default() as graph:
        image_bytes = tf.compat.v1.placeholder(tf.string, [])
        loaded = tf.saved_model.load(path)
        record = loaded.record(image_bytes)
        run = _runner(graph, image_bytes, [record[name] for name in (ENCODED, HEIGHT, WIDTH)])

    def store(data: bytes, _: Format) -> tuple[bytes, int, int, None]:
        encoded, height, width = run(np.array(data, object))
        return encoded, int(height), int(width), None

    return store


def _runner(graph: tf.Graph, image_bytes: tf.Tensor, outputs: list[tf.Tensor]) -> Callable[[np.ndarray], Any]:
    """A function from the value of `image_bytes` to the values of `outputs`, which runs in its caller's thread."""
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=-1, intra_op_parallelism_threads=1, device_count={"GPU": 0}
    )
    session = tf.compat.v1.Session(graph=graph, config=config)
    options = CallableOptions(feed=[image_bytes.name], fetch=[output.name for output in outputs])
    # The public `make_callable` calls `Session.run` when there are feeds, whose Python code takes 0.25 ms: more than
    # everything else that is done to a small image. tf_keras runs its graphs with this one, too.
    return session._make_callable_from_options(options)  # private: no public call does without `Session.run`


def save_ingest(images: ImageOptions, path: str) -> None:
    """Writes the graph as a SavedModel.

    Signature `serving_default`: `image_bytes` string `[batch]` -> `image/encoded`, `image/format`, `image/height`,
    `image/width`, each `[batch]`. The loaded object also has `image` and `record` for one file.
    """
    ingest = Ingest(images)
    tf.saved_model.save(ingest, path, signatures=ingest.batch)  # a concrete function would be traced again for saving


def canonical(data: tf.Tensor, images: ImageOptions, file_format: Format | None = None) -> tf.Tensor:
    """Checks, decodes and resizes a file's bytes to uint8 `[height, width, 3]`; arguments as `decode`'s."""
    image, size, extent = decode(data, images, file_format)
    exact = images.resize.exact if isinstance(images.resize, Exact) else (None, None)
    same = tf.reduce_all(tf.equal(tf.shape(image)[:2], size))
    resized = tf.cond(same, lambda: image, lambda: resize(image, size, extent))
    return tf.ensure_shape(resized, (*exact, 3))


def encode(image: tf.Tensor, images: ImageOptions) -> dict[str, tf.Tensor]:
    """Makes the record's columns of canonical pixels: `image/encoded` is a JPEG, or the pixels row by row."""
    if images.store == "raw":
        # The pixels are the last field of a serialised TensorProto: the one op that makes a string of a tensor's bytes.
        encoded = tf.strings.substr(tf.io.serialize_tensor(image), -tf.size(image), tf.size(image))
    else:
        encoded = tf.io.encode_jpeg(image, format="rgb", quality=images.quality)
    size = tf.shape(image, tf.int64)
    return {ENCODED: encoded, FORMAT: tf.constant(FORMATS[images.store]), HEIGHT: size[0], WIDTH: size[1]}
