"""The image inputs of an exported model: files pass through the dataset's ingest graph, then as in evaluation.

The ingest graph's output is encoded and decoded again, like a stored image, since training saw the pixels of the stored
JPEG.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset, layout
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from trainer.export.image_isolation import map_isolated, starts_like_an_image
from trainer.export.row_errors import ROW_ERROR
from trainer.images.augment import AugmentOptions
from trainer.images.inputs import stored_image


def image_columns(schema: ImageSchema) -> tuple[RawColumn, ...]:
    """The inputs of a request: for each image a string, the bytes of the file."""
    return tuple(RawColumn(name, "string") for name in schema.image_names)


def load_ingest(dataset: Dataset) -> Any:
    """Loads the dataset's ingest graph into the current graph, or eagerly.

    Its `record` takes the bytes of one file, its `batch` those of several. Both return what is stored:
    `image/encoded` and `image/format`, strings, `image/height` and `image/width`, int64. A file that is
    not an image, or exceeds the schema's limits, is an InvalidArgumentError.

    It has no variables, so nothing needs to be initialized.
    """
    return tf.saved_model.load(layout.join(dataset.graphs_dir, layout.INGEST_FN))


def at_least_one(images: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Pads an empty batch to one black image (or pair); also returns the original batch size, an int32 scalar.

    With oneDNN, TensorFlow's convolutions (as of 2.21) return a wrong shape for an empty batch, so that later layers
    fail.
    """
    count = tf.shape(next(iter(images.values())))[0]
    more = [[0, tf.maximum(1 - count, 0)], [0, 0], [0, 0], [0, 0]]
    return {name: tf.ensure_shape(tf.pad(x, more), [None, *x.shape[1:]]) for name, x in images.items()}, count


def served_images(dataset: Dataset, files: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Bytes of files -> the model's input.

    Args:
      dataset: has the ingest graph and the image size.
      files: string `[batch]` for each of the schema's `image_names`.

    Returns:
      uint8 `[good, height, width, 3]` by the same names, and string `[batch]` as `ROW_ERROR`: '' if every image of the
      row was accepted. The images are those of these rows alone: no model computes what is not answered.
    """
    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has checked
    images = schema.images
    size = images.input_size
    options = AugmentOptions(size=size)
    ingest = load_ingest(dataset)

    def preprocess(data: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(stored_image(ingest.record(data), images, options), pixels.shape)

    pixels = tf.TensorSpec([*size, 3], tf.uint8)
    errors = tf.fill(tf.shape(next(iter(files.values()))), "")
    with tf.device("/cpu:0"):  # the decoders run on the CPU; moving single images to another device would be slow
        made = {name: map_isolated(data, preprocess, pixels, images) for name, data in files.items()}
        for name, (_, accepted) in reversed(made.items()):
            errors = tf.where(accepted, errors, _reason(name, files[name], images.max_file_bytes))
        good = tf.equal(errors, "")
        features = {name: tf.boolean_mask(x, tf.boolean_mask(good, accepted)) for name, (x, accepted) in made.items()}
    return {**features, ROW_ERROR: errors}


def _reason(name: str, files: tf.Tensor, max_bytes: int) -> tf.Tensor:
    """Why each file was not accepted, judging by its size and its first bytes: string `[batch]`."""
    reason = tf.where(starts_like_an_image(files), "undecodable_image", "not_an_image")
    reason = tf.where(tf.equal(files, ""), "empty_file", reason)
    reason = tf.where(tf.strings.length(files) <= max_bytes, reason, "file_too_large")
    return tf.strings.join([f"{name}: ", reason])
