"""The ingest graph: an image file's bytes -> the canonical image that is stored, in TensorFlow ops.

It is stateless and works on one image. The job runs it on every file and a served model on every request, so both see
the same pixels. It raises InvalidArgumentError for a file that it does not accept. `schemas.images.header` checks the
same limits in plain Python, so a job's rejects have their reasons before anything is decoded.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from beam_jobs.images.decode import decode
from beam_jobs.images.resize import resize, target_size
from schemas.spec.image_keys import ENCODED, FORMAT, FORMATS, HEIGHT, WIDTH
from schemas.spec.image_options import Exact, ImageOptions

INPUT = "image_bytes"
VERSION = 2  # 1, of release 0.1.0, decoded every JPEG at full size


class Ingest(tf.Module):
    """The graph for one way of storing images, as functions of a file's bytes.

    image: string `[]` -> the canonical pixels before they are encoded, uint8 `[height, width, 3]`.
    record: string `[]` -> the file as it is stored: `image/encoded` and `image/format` strings, `image/height` and
        `image/width` int64.
    batch: `image_bytes` string `[batch]` -> as `record`, each `[batch]`. One file that is not accepted fails all.
    version: VERSION, int32 `[]`. Graphs of version 1 lack it.
    """

    def __init__(self, images: ImageOptions) -> None:
        super().__init__(name="ingest")
        one = [tf.TensorSpec([], tf.string, name=INPUT)]
        many = [tf.TensorSpec([None], tf.string, name=INPUT)]

        def record(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            return encode(self.image(image_bytes), images)

        def batch(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            strings, sizes = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
            signature = {ENCODED: strings, FORMAT: strings, HEIGHT: sizes, WIDTH: sizes}
            return tf.map_fn(self.record, image_bytes, fn_output_signature=signature, parallel_iterations=16)

        def graph(function: Callable[..., Any], inputs: list[tf.TensorSpec]) -> Any:
            return tf.function(function, input_signature=inputs, autograph=False)

        self.version = graph(lambda: tf.constant(VERSION), [])
        self.image = graph(lambda image_bytes: canonical(image_bytes, images), one)
        self.record = graph(record, one)
        self.batch = graph(batch, many)


@functools.lru_cache(maxsize=1)
def stored_and_pixels(images: ImageOptions) -> Callable[[np.ndarray], tuple[bytes, np.ndarray]]:
    """The same graph for this process: a file's bytes, an object `[]`, -> `image/encoded` and the canonical pixels.

    It runs in the calling thread, and several threads may call it at once. (A `tf.function` runs its ops in a pool,
    whose threads spin while they wait.) Raises InvalidArgumentError or another OpError.
    """
    with tf.Graph().as_default() as graph:
        image_bytes = tf.compat.v1.placeholder(tf.string, [])
        image = canonical(image_bytes, images)
        outputs = [encode(image, images)[ENCODED], image]
    return _runner(graph, image_bytes, outputs)


@dataclasses.dataclass(frozen=True)
class JobIngest:
    """An ingest graph as a job runs it.

    store: a file's bytes -> `image/encoded`, height, width, and the canonical pixels where they are to be measured.
        Raises InvalidArgumentError or another OpError.
    scales: whether it decodes large JPEGs at a scale (`schemas.images.limits.decoding_ratio`).
    """

    store: Callable[[bytes], tuple[bytes, int, int, np.ndarray | None]]
    scales: bool


def todays_ingest(images: ImageOptions) -> JobIngest:
    """The graph that this release stores images with."""
    run = stored_and_pixels(images)

    def store(data: bytes) -> tuple[bytes, int, int, np.ndarray]:
        encoded, pixels = run(np.array(data, object))
        return encoded, pixels.shape[0], pixels.shape[1], pixels

    return JobIngest(store, scales=True)


@functools.lru_cache(maxsize=1)
def saved_ingest(path: str) -> JobIngest:
    """The graph that `save_ingest` wrote for a dataset, in this release or an earlier one.

    It stores new images of that dataset as the others are stored. The dataset's channels are already measured, so it
    returns no pixels to measure.
    """
    with tf.Graph().as_default() as graph:
        image_bytes = tf.compat.v1.placeholder(tf.string, [])
        loaded = tf.saved_model.load(path)
        record = loaded.record(image_bytes)
        run = _runner(graph, image_bytes, [record[name] for name in (ENCODED, HEIGHT, WIDTH)])

    def store(data: bytes) -> tuple[bytes, int, int, None]:
        encoded, height, width = run(np.array(data, object))
        return encoded, int(height), int(width), None

    return JobIngest(store, scales=hasattr(loaded, "version"))


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


def canonical(data: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Check, decode, resize: uint8 `[height, width, 3]` from a file's bytes, a string scalar."""
    image, sides, ratio = decode(data, images)
    size = target_size(sides[0], sides[1], images)
    exact = images.resize.exact if isinstance(images.resize, Exact) else (None, None)
    same = tf.reduce_all(tf.equal(tf.shape(image)[:2], size))
    extent = tf.cast(sides, tf.float32) / tf.cast(ratio, tf.float32)
    resized = tf.cond(same, lambda: image, lambda: resize(image, size, extent))
    return tf.ensure_shape(resized, (*exact, 3))


def encode(image: tf.Tensor, images: ImageOptions) -> dict[str, tf.Tensor]:
    """The record's columns of canonical pixels: `image/encoded` is a JPEG, or the pixels row by row."""
    if images.store == "raw":
        # The pixels are the last field of a serialised TensorProto: the one op that makes a string of a tensor's bytes.
        encoded = tf.strings.substr(tf.io.serialize_tensor(image), -tf.size(image), tf.size(image))
    else:
        encoded = tf.io.encode_jpeg(image, format="rgb", quality=images.quality)
    size = tf.shape(image, tf.int64)
    return {ENCODED: encoded, FORMAT: tf.constant(FORMATS[images.store]), HEIGHT: size[0], WIDTH: size[1]}
