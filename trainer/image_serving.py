"""A served model's images: files' bytes through the data set's own ingest graph, then as evaluation sees them.

What comes out of the ingest graph is encoded and decoded again, as a stored image is: the pixels that training saw are
those of the stored JPEG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from schemas import layout
from schemas.dataset import Dataset
from schemas.image_header import PNG
from schemas.image_record import ENCODED, FORMAT, HEIGHT, WIDTH
from schemas.image_schema import ImageSchema
from schemas.raw import RawColumn
from trainer.augment import AugmentOptions
from trainer.image_features import image_names
from trainer.image_inputs import stored_image
from trainer.row_errors import ROW_ERROR

MAGIC = (b"\xff\xd8\xff", PNG, b"GIF87a", b"GIF89a", b"BM")  # the first bytes of the formats that are read
SIDE_BY_SIDE = 8  # images of a request that are decoded at once: a large one takes some 100 MB


def image_columns(schema: ImageSchema) -> tuple[RawColumn, ...]:
    """What a request sends: each image as a string, a whole file's bytes."""
    return tuple(RawColumn(name, "string") for name in image_names(schema))


def load_ingest(dataset: Dataset) -> Any:
    """The data set's ingest graph, in the graph that is being built (or eagerly): `record` is for one file's bytes.

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
        return tf.ensure_shape(stored_image(ingest.record(data), images, options), [*size, 3])

    features = {}
    errors = tf.fill(tf.shape(next(iter(files.values()))), "")
    with tf.device("/cpu:0"):  # the decoders are there: image by image, other devices would only be in the way
        for name, data in reversed(list(files.items())):
            small = tf.strings.length(data) <= images.max_file_bytes
            features[name], taken = seen(tf.where(small, data, ""), see)
            errors = tf.where(taken, errors, _reason(name, data, small))
    return {**{name: features[name] for name in files}, ROW_ERROR: errors}


def seen(files: tf.Tensor, see: Callable[[tf.Tensor], tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """What `see` makes of each file by itself, so that one which it refuses fails no other.

    Args:
      files: string `[batch]`.
      see: string `[]` -> a tensor of a fixed shape; raises on what it does not take.

    Returns:
      `[batch, ...]`, zeros for what was refused; and bool `[batch]`, what was not.
    """
    count = tf.shape(files, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), files))
    made = numbered.map(lambda i, data: (i, see(data)), num_parallel_calls=SIDE_BY_SIDE, deterministic=True)
    options = tf.data.Options()  # what tf.data does to its graph, it would do for each request, and at length
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    whole = made.ignore_errors().batch(tf.maximum(count, 1)).with_options(options)  # one batch, or none
    spec = made.element_spec[1]
    nothing = tf.zeros([0], tf.int64), tf.zeros([0, *spec.shape], spec.dtype)
    places, results = whole.reduce(nothing, lambda _, batch: batch)
    results = tf.scatter_nd(places[:, tf.newaxis], results, tf.stack([count, *spec.shape]))
    return tf.ensure_shape(results, [None, *spec.shape]), tf.scatter_nd(
        places[:, tf.newaxis], tf.ones_like(places, tf.bool), [count]
    )


def _reason(name: str, files: tf.Tensor, small: tf.Tensor) -> tf.Tensor:
    """Why each file was not taken, as far as its size and its first bytes tell. string `[batch]`."""
    starts = tf.stack([tf.equal(tf.strings.substr(files, 0, len(m)), m) for m in MAGIC], axis=1)
    reason = tf.where(tf.reduce_any(starts, axis=1), "undecodable_image", "not_an_image")
    reason = tf.where(tf.equal(files, ""), "empty_file", reason)
    return tf.strings.join([f"{name}: ", tf.where(small, reason, "file_too_large")])
