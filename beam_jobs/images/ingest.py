"""The ingest graph: TensorFlow ops that turn the bytes of an image file into the canonical image, which is stored.

A canonical image is decoded to three channels and resized as the schema says. The graph has no state and works on one
image. The job runs the graph on every file, and a served model runs it on every request, so both see the same pixels.
The graph raises InvalidArgumentError for a file that it does not accept. `schemas.images.header` checks the same limits
in plain Python before anything is decoded, so that a job's rejects have reasons.

These properties of decoding are intended:

- The format is detected from the first bytes, not from the file name.
- EXIF orientation is ignored, in training and in serving; an alpha channel is dropped, not blended.
- CMYK and YCCK JPEGs are converted without a colour profile; the inverted inks that Adobe stores are inverted back.
- 16 bits become 8, a palette becomes colours, one channel becomes three equal ones.
- A truncated file is an error, never padded.
- A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if that is at least `downscale` times the stored size.

Resizing gives the result of `tf.image.resize(method="bilinear", antialias=True)`, bit by bit, in half the time. The op
behind `tf.image.resize`, ScaleAndTranslate, resizes rows and then columns, and computes three channels at a time, which
is slow. Here, each direction is a separate call of the op, on an image that is one column wide and has a whole row as
the channels of each pixel. The op then computes the same sums in the same order, but over long vectors.
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
    """Returns an op that fails, with the values in its message, unless the condition holds.

    `tf.debugging.Assert` would add a conditional to the graph; this is a single op.
    """
    return tf.raw_ops.Assert(condition=condition, data=values)


def target_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Computes the height and width after resizing, by the rule of `schemas.spec.images`.

    Args:
      sides: the height and width of the image, integer `[2]`.
      images: how images are stored: an exact size, or the length of the shorter side.

    Returns:
      The new height and width, int32 `[2]`.
    """
    if isinstance(images.resize, Exact):
        return tf.constant(images.resize.exact)
    sides = tf.cast(sides, tf.int64)
    short = tf.reduce_min(sides)
    # `shorter * sides / short`, rounded to the nearest integer, in integer arithmetic.
    return tf.cast((2 * images.resize.shorter * sides + short) // (2 * short), tf.int32)


def resize(image: tf.Tensor, size: tf.Tensor, extent: tf.Tensor | None = None) -> tf.Tensor:
    """Resizes an image, bilinear with antialias. Values are rounded to bytes, halves to even.

    Args:
      image: the image, uint8 `[height, width, 3]`.
      size: the new height and width, int32 `[2]`.
      extent: the height and width of the picture in the image, float32 `[2]`. A picture may end within the last row or
        column: a JPEG of 1,001 rows decoded at 1/8 has 126 rows, and the picture covers 125.125 rows. None: the picture
        covers the whole image.

    Returns:
      The resized image, uint8 `[size[0], size[1], 3]`.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    scale = tf.cast(size, tf.float32) / tf.cast(tf.shape(image)[:2] if extent is None else extent, tf.float32)
    rows = resize_rows(tf.reshape(image, [height, 3 * width]), size[0], scale[0])
    # Transposes matrices, because transposing an image of three channels takes longer. The second transposition is
    # done after the rounding, because bytes take less time than floats.
    columns = tf.reshape(tf.transpose(rows), [width, 3 * size[0]])
    columns = resize_rows(columns, size[1], scale[1])
    # The kernel's weights are positive and add up to 1, so no value is below 0 or above 255.
    pixels = tf.reshape(tf.cast(tf.round(columns), tf.uint8), [3 * size[1], size[0]])
    return tf.reshape(tf.transpose(pixels), [size[0], size[1], 3])


def resize_rows(rows: tf.Tensor, to: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Resizes a matrix in its first dimension only: uint8 or float32 `[height, m]` to float32 `[to, m]`.

    Args:
      rows: the matrix.
      to: the new number of rows, int32 `[]`.
      scale: the scale, float32 `[]`: usually `to / height`.
    """
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


Decoded = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # the image, its size after resizing, and its extent: see `decode`


def decode(data: tf.Tensor, images: ImageOptions, file_format: Format | None = None) -> Decoded:
    """Checks the dimensions in the header, then decodes a file's bytes.

    Args:
      data: the bytes, string `[]`.
      images: how images are stored.
      file_format: the format of the file, if it is known, to build a smaller graph for this format alone. None: the
        graph looks at the first bytes.

    Returns:
      The image, uint8 `[height, width, 3]`; the height and width to resize it to, int32 `[2]`; and the height and width
      of the picture in the image, float32 `[2]`. A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size
      (`schemas.images.header`), and the picture may then end within the last row: 1,001 rows at 1/8 are 126 rows, and
      the picture covers 125.125 rows.
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
    """Decodes a JPEG at the smallest scale that is large enough, by the rule of `schemas.images.header.decoding_ratio`.

    Args:
      data: the bytes of the file, string `[]`.
      sides: the height and width in the file's header, int32 `[2]`.
      size: the height and width after resizing, int32 `[2]`.
      downscale: how many times as large as `size` the decoded image must be.

    Returns:
      The image, the size after resizing, and the extent of the picture, as `decode` returns them.
    """

    def decoded(ratio: int) -> Callable[[], tf.Tensor]:
        return lambda: tf.io.decode_jpeg(data, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")

    ratios = (1, *reversed(RATIOS))
    # A ratio fits if the decoded image is large enough. If 8 fits, so do 4 and 2, so the number of fitting ratios is
    # the index of the largest one in (1, 2, 4, 8).
    fits = tf.reduce_min(sides // (downscale * size)) >= tf.constant(ratios[1:])
    index = tf.reduce_sum(tf.cast(fits, tf.int32))
    image = tf.switch_case(index, [decoded(ratio) for ratio in ratios])
    ratio = tf.cast(tf.bitwise.left_shift(1, index), tf.float32)
    return tf.ensure_shape(image, [None, None, 3]), size, tf.cast(sides, tf.float32) / ratio


def checked_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Computes the size after resizing as `target_size` does, and fails for images that would need too much memory.

    An image fails if it has more than `max_pixels`, or if it is so elongated that resizing needs more than that.
    """
    sides = tf.cast(sides, tf.int64)
    size = target_size(tf.maximum(sides, 1), images)
    small = (tf.reduce_min(sides) > 0) & (tf.reduce_prod(sides) <= images.max_pixels)
    # Rows are resized first, so the largest intermediate image has the new height, and the larger of both widths.
    widest = tf.maximum(tf.cast(size, tf.int64), sides * [0, 1])
    fits = (tf.reduce_prod(widest) <= images.max_pixels) & (tf.reduce_max(size) <= LONGEST_SIDE)
    reason = tf.where(small, "too_elongated", "too_many_pixels")
    with tf.control_dependencies([check(small & fits, reason, "height and width:", sides[0], sides[1])]):
        return tf.identity(size)


def check_scans(data: tf.Tensor) -> tf.Operation:
    """Fails for a JPEG with more than JPEG_SCANS scans: decoding passes over the whole image once for each scan."""
    # Counts the markers of scans by splitting the bytes at the marker. Comparing byte by byte would take ten times as
    # long, a third of the time that decoding a photo takes.
    parts = tf.raw_ops.StringSplitV2(input=[data], sep=b"\xff\xda", maxsplit=JPEG_SCANS + 1).values
    return check(tf.size(parts) <= JPEG_SCANS + 1, "too_many_scans: JPEG of more than", JPEG_SCANS)


def _head(data: tf.Tensor) -> tf.Tensor:
    """The first 128 bytes of a file, followed by zeros, so that `substr` does not fail for a short file.

    `substr` beyond the end of a string would put the whole file into its error message.
    """
    return tf.strings.join([tf.strings.substr(data, 0, 128), b"\0" * 128])


def _integer(data: tf.Tensor, place: int) -> tf.Tensor:
    """A big-endian integer of the header, int32 scalar; 0 beyond the file's end."""
    return tf.io.decode_raw(tf.strings.substr(_head(data), place, 4), tf.int32, little_endian=False)[0]


INPUT = "image_bytes"


class Ingest(tf.Module):
    """The ingest graph for one way of storing images, as three functions of the bytes of files.

    Attributes:
      image: takes one file, string `[]`. Returns the canonical image, uint8 `[height, width, 3]`.
      record: takes one file, string `[]`. Returns its columns: the strings `image/encoded` and `image/format`, and the
        int64 values `image/height` and `image/width`.
      batch: takes several files, `image_bytes` string `[batch]`. Returns the columns of `record`, each `[batch]`. If
        one file is not accepted, the whole batch fails.
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


@functools.lru_cache(maxsize=2)  # one entry for each of the two formats, JPEG and PNG
def stored_and_pixels(images: ImageOptions, file_format: Format) -> Callable[[np.ndarray], tuple[bytes, np.ndarray]]:
    """Builds the ingest graph for files of one format, and returns a function that runs the graph.

    The function takes the bytes of a file, as an object array `[]`, and returns `image/encoded` and the pixels, uint8
    `[height, width, 3]`. For a file that is not accepted, it raises InvalidArgumentError or another OpError.
    Several threads may call it at once, and it runs in the calling thread. (A `tf.function` would run its ops in a
    pool of threads, and these spin while they wait.)
    """
    with tf.Graph().as_default() as graph:
        image_bytes = tf.compat.v1.placeholder(tf.string, [])
        image = canonical(image_bytes, images, file_format)
        outputs = [encode(image, images)[ENCODED], image]
    return _runner(graph, image_bytes, outputs)


# A function that takes a file's bytes and format, and returns `image/encoded`, the height, the width, and the canonical
# pixels; None in place of the pixels if they need not be measured. Raises InvalidArgumentError or another OpError.
StoreImage: TypeAlias = Callable[[bytes, Format], tuple[bytes, int, int, "np.ndarray | None"]]


def new_ingest(images: ImageOptions) -> StoreImage:
    """Returns a function that stores images of a new dataset. The first image of a format builds the format's graph."""
    building = threading.Lock()

    def store(data: bytes, file_format: Format) -> tuple[bytes, int, int, np.ndarray]:
        with building:  # so that only one thread builds the graph of a format
            run = stored_and_pixels(images, file_format)
        encoded, pixels = run(np.array(data, object))
        return encoded, pixels.shape[0], pixels.shape[1], pixels

    return store


@functools.lru_cache(maxsize=1)
def saved_ingest(path: str) -> StoreImage:
    """Loads the graph that `save_ingest` wrote for a dataset, and returns a function that stores images with it.

    An append uses this graph, so that new images are stored like the old ones, also by a later release. The dataset's
    channels are already measured, so the function returns None in place of pixels.
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
    """Returns a function that takes the value of `image_bytes` and returns the values of `outputs`.

    The function runs the graph in its caller's thread.
    """
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=-1, intra_op_parallelism_threads=1, device_count={"GPU": 0}
    )
    session = tf.compat.v1.Session(graph=graph, config=config)
    options = CallableOptions(feed=[image_bytes.name], fetch=[output.name for output in outputs])
    # With inputs, the public `make_callable` calls `Session.run`, and the Python code of `Session.run` takes 0.25 ms:
    # more than all other work on a small image. tf_keras calls the same private method.
    return session._make_callable_from_options(options)  # private: all public calls go through `Session.run`


def save_ingest(images: ImageOptions, path: str) -> None:
    """Writes the ingest graph as a SavedModel.

    Signature `serving_default`: `image_bytes` string `[batch]` -> `image/encoded`, `image/format`, `image/height`,
    `image/width`, each `[batch]`. The loaded object also has `image` and `record` for one file.
    """
    ingest = Ingest(images)
    tf.saved_model.save(ingest, path, signatures=ingest.batch)  # a concrete function would be traced again for saving


def canonical(data: tf.Tensor, images: ImageOptions, file_format: Format | None = None) -> tf.Tensor:
    """Decodes and resizes a file's bytes to the canonical image. Fails for a file that is not accepted.

    Args:
      data: the bytes of the file, string `[]`.
      images: how images are stored.
      file_format: the format of the file, if it is known; None: the graph looks at the first bytes.

    Returns:
      The canonical image, uint8 `[height, width, 3]`.
    """
    image, size, extent = decode(data, images, file_format)
    exact = images.resize.exact if isinstance(images.resize, Exact) else (None, None)
    same = tf.reduce_all(tf.equal(tf.shape(image)[:2], size))
    resized = tf.cond(same, lambda: image, lambda: resize(image, size, extent))
    return tf.ensure_shape(resized, (*exact, 3))


def encode(image: tf.Tensor, images: ImageOptions) -> dict[str, tf.Tensor]:
    """Makes the record's columns from a canonical image, uint8 `[height, width, 3]`.

    `image/encoded` is a JPEG, or if the schema says `store: raw`, the bytes of the pixels, row by row.
    """
    if images.store == "raw":
        # Only `serialize_tensor` makes a string of a tensor's bytes. They are the last field of a serialized
        # TensorProto, so the last `size` bytes of the string are the pixels.
        encoded = tf.strings.substr(tf.io.serialize_tensor(image), -tf.size(image), tf.size(image))
    else:
        encoded = tf.io.encode_jpeg(image, format="rgb", quality=images.quality)
    size = tf.shape(image, tf.int64)
    return {ENCODED: encoded, FORMAT: tf.constant(FORMATS[images.store]), HEIGHT: size[0], WIDTH: size[1]}
