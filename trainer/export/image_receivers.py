"""A served model's images: files' bytes through the dataset's own ingest graph, then as evaluation sees them.

What comes out of the ingest graph is encoded and decoded again, as a stored image is: the pixels that training saw are
those of the stored JPEG.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset, layout
from schemas.images.header import MAGIC
from schemas.images.keys import ENCODED, FORMAT, HEIGHT, WIDTH
from schemas.spec.images import ImageSchema
from schemas.spec.raw_columns import RawColumn
from trainer.export.image_isolation import SIDE_BY_SIDE, map_isolated
from trainer.export.row_errors import ROW_ERROR
from trainer.images.augment import AugmentOptions
from trainer.images.inputs import stored_image
from trainer.images.names import image_names


def image_columns(schema: ImageSchema) -> tuple[RawColumn, ...]:
    """What a request sends: each image as a string, a whole file's bytes."""
    return tuple(RawColumn(name, "string") for name in image_names(schema))


def load_ingest(dataset: Dataset) -> Any:
    """The dataset's ingest graph, in the graph that is being built (or eagerly): `record` is for one file's bytes.

    It holds no variables, so that nothing has to be initialised, whatever kind of graph this is.
    """
    return tf.saved_model.load(layout.join(dataset.graphs_dir, layout.INGEST_FN))


def ingest_records(ingest: Any, files: tf.Tensor) -> dict[str, tf.Tensor]:
    """Files as they are stored.

    Args:
      ingest: what `load_ingest` gives.
      files: string `[batch]`, of any length.

    Returns:
      `image/encoded` and `image/format`, strings, `image/height` and `image/width`, int64; each `[batch]`.

    Raises:
      tf.errors.InvalidArgumentError: one of the files is no image, or more than the schema allows.
    """
    strings, sizes = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
    signature = {ENCODED: strings, FORMAT: strings, HEIGHT: sizes, WIDTH: sizes}
    records: dict[str, tf.Tensor] = tf.map_fn(
        ingest.record, files, fn_output_signature=signature, parallel_iterations=SIDE_BY_SIDE
    )
    return records


def at_least_one(images: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The same batch, or one black image (or pair) where it is empty; and how many there were, int32 scalar.

    TensorFlow's convolutions give an empty batch a shape that is not the output's (with oneDNN, as of 2.21), so that
    the layers behind them fail.
    """
    count = tf.shape(next(iter(images.values())))[0]
    more = [[0, tf.maximum(1 - count, 0)], [0, 0], [0, 0], [0, 0]]
    return {name: tf.ensure_shape(tf.pad(x, more), [None, *x.shape[1:]]) for name, x in images.items()}, count


def served_images(dataset: Dataset, files: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Files' bytes -> what the model reads.

    Args:
      dataset: whose ingest graph and whose size.
      files: string `[batch]` under each of `image_names`.

    Returns:
      uint8 `[batch, height, width, 3]` under the same names, and string `[batch]` as `ROW_ERROR`: '' where every image
      of the row was taken. One that was not is black, and its neighbours are what they are without it.
    """
    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has looked
    images = schema.images
    size = images.input_size
    options = AugmentOptions(size=size)
    ingest = load_ingest(dataset)

    def see(data: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(stored_image(ingest.record(data), images, options), pixels.shape)

    pixels = tf.TensorSpec([*size, 3], tf.uint8)
    features = {}
    errors = tf.fill(tf.shape(next(iter(files.values()))), "")
    with tf.device("/cpu:0"):  # the decoders are there: image by image, other devices would only be in the way
        for name, data in reversed(list(files.items())):
            small = tf.strings.length(data) <= images.max_file_bytes
            features[name], taken = map_isolated(tf.where(small, data, ""), see, pixels, images)
            errors = tf.where(taken, errors, _reason(name, data, small))
    return {**{name: features[name] for name in files}, ROW_ERROR: errors}


def _reason(name: str, files: tf.Tensor, small: tf.Tensor) -> tf.Tensor:
    """Why each file was not taken, as far as its size and its first bytes tell. string `[batch]`."""
    starts = tf.stack([tf.equal(tf.strings.substr(files, 0, len(m)), m) for m in MAGIC], axis=1)
    reason = tf.where(tf.reduce_any(starts, axis=1), "undecodable_image", "not_an_image")
    reason = tf.where(tf.equal(files, ""), "empty_file", reason)
    return tf.strings.join([f"{name}: ", tf.where(small, reason, "file_too_large")])
