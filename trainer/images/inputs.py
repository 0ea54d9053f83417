"""Stored image records -> what a model sees: `image`, or `left` and `right`, and the label.

One function makes an image of a stored record for every mode: with a seed it crops and changes at random (TRAIN),
without one it takes the centre crop. Serving calls it on what the ingest graph gives. What a network reads of these
uint8 images has each channel normalized by the transform of the train split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.spec.images import ENCODED, FORMAT, HEIGHT, WIDTH, ImageOptions, ImageSchema
from trainer.images.augment import AugmentOptions, augment_jpeg, augment_raw, decode_whole
from trainer.spec.transform_graph import transformed

PIXELS = "pixels"  # the transform graph's one feature: float32 [3], a pixel


def normalized(images: tf.Tensor, transform_output: tft.TFTransformOutput) -> tf.Tensor:
    """Normalises a batch's pixels by the dataset's own tf.Transform graph. To be called inside a `model_fn`.

    Args:
      images: uint8 or float32 `[batch, height, width, 3]`, values from 0 to 255, as the model gets them.
      transform_output: of the run that the model is trained on: `tft.TFTransformOutput(problem.run_dir)`.

    Returns:
      float32 `[batch, height, width, 3]`, of the images' static shape.
    """
    flat = tf.reshape(tf.cast(images, tf.float32), [-1, 3])
    pixels = transformed(transform_output, {PIXELS: flat})[PIXELS]
    return tf.ensure_shape(tf.reshape(pixels, tf.shape(images)), images.shape)


_DTYPES = {ENCODED: tf.string, HEIGHT: tf.int64, WIDTH: tf.int64, FORMAT: tf.string}


def record_spec(schema: ImageSchema, *, everything: bool = False) -> dict[str, Any]:
    """Parses stored records, as far as a model needs them; or all that a job stores but the files' names."""
    keys = tuple(_DTYPES) if everything else (ENCODED,) if schema.images.store == "jpeg" else (ENCODED, HEIGHT, WIDTH)
    spec = {schema.stored_key(n, k): tf.io.FixedLenFeature([], _DTYPES[k]) for n in schema.image_names for k in keys}
    spec[schema.label_key] = tf.io.FixedLenFeature([], tf.int64)
    text = {} if schema.text_key is None or not everything else {schema.text_key: tf.io.FixedLenFeature([], tf.string)}
    return {**spec, **text}


def image_examples(
    records: tf.data.Dataset,
    schema: ImageSchema,
    options: AugmentOptions,
    *,
    seeds: tf.data.Dataset | None = None,
    deterministic: bool = True,
) -> tf.data.Dataset:
    """Decodes, crops and, with seeds, augments records side by side.

    Args:
      records: serialized records, string `[]`.
      schema: how images are stored.
      options: what training does; the size of the crop in any case.
      seeds: integers `[2]`, one each record; None: the centre crop and nothing else.
      deterministic: keeps the order of the records.

    Returns:
      (features, label): each image uint8 `[height, width, 3]`, the label int64 `[]`.
    """
    spec, names = record_spec(schema), schema.image_names

    def example(serialized: tf.Tensor, seed: tf.Tensor | None = None) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        fields = tf.io.parse_single_example(serialized, spec)
        each = _seeds_of(seed, len(names))
        images = {}
        for i, name in enumerate(names):
            stored = {key: fields.get(schema.stored_key(name, key)) for key in _DTYPES}
            images[name] = stored_image(stored, schema.images, options, seed=each[i])
        return images, fields[schema.label_key]

    rows = records if seeds is None else tf.data.Dataset.zip((records, seeds))
    return rows.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


def decoded_window(records: tf.data.Dataset, schema: ImageSchema, rows: int) -> tf.data.Dataset:
    """Decodes all records once, into one element that holds all images.

    Args:
      records: serialized records, string `[]`; finite.
      schema: how images are stored.
      rows: how many there are, at most.

    Returns:
      ({name: (pixels, ends, shapes)}, labels), labels int64 `[n]`: of each of the record's images the pixels of all
      records one after the other, uint8 `[bytes]`, where each one ends, int64 `[n]`, and its shape, int64 `[n, 3]`.
    """
    spec = record_spec(schema)

    def example(serialized: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        fields = tf.io.parse_single_example(serialized, spec)
        found = {}
        for name in schema.image_names:
            image = _whole({key: fields.get(schema.stored_key(name, key)) for key in _DTYPES}, schema.images)
            found[name] = (tf.reshape(image, [-1]), tf.shape(image, tf.int64))
        return found, fields[schema.label_key]

    def flat(images: dict[str, Any], labels: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        return {n: (pixels.values, pixels.row_splits[1:], shapes) for n, (pixels, shapes) in images.items()}, labels

    examples = records.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return examples.ragged_batch(rows, row_splits_dtype=tf.int64).map(flat)


def cropped(
    places: tf.data.Dataset,
    schema: ImageSchema,
    options: AugmentOptions,
    *,
    seeds: tf.data.Dataset,
    deterministic: bool = True,
) -> tf.data.Dataset:
    """As `image_examples`, from (an element of `decoded_window`, the place of a record in it, int64 `[]`)."""
    names = schema.image_names

    def example(window: tuple[Any, tf.Tensor], place: tf.Tensor, seed: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        images, labels = window
        each = _seeds_of(seed, len(names))
        found = {}
        for i, name in enumerate(names):
            pixels, ends, shapes = images[name]
            shape, end = shapes[place], ends[place]
            whole = tf.reshape(pixels[end - tf.reduce_prod(shape) : end], shape)
            found[name] = augment_raw(tf.ensure_shape(whole, [None, None, 3]), options, seed=each[i])
        return found, labels[place]

    return tf.data.Dataset.zip((places, seeds)).map(
        lambda found, seed: example(found[0], found[1], seed),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic,
    )


def stored_image(
    stored: Mapping[str, Any], images: ImageOptions, options: AugmentOptions, *, seed: tf.Tensor | None = None
) -> tf.Tensor:
    """One stored image as the model sees it.

    Args:
      stored: `image/encoded`, and of raw pixels `image/height` and `image/width`, scalars.
      images: how it is stored.
      options: what training does; the size of the crop in any case.
      seed: integers `[2]` in training, None elsewhere.

    Returns:
      uint8 `[height, width, 3]`.
    """
    if images.store == "jpeg":
        return augment_jpeg(stored[ENCODED], options, seed=seed)
    return augment_raw(_whole(stored, images), options, seed=seed)


def _whole(stored: Mapping[str, Any], images: ImageOptions) -> tf.Tensor:
    """All pixels of a stored image, uint8 `[height, width, 3]`."""
    if images.store == "jpeg":
        return decode_whole(stored[ENCODED])
    pixels = tf.io.decode_raw(stored[ENCODED], tf.uint8)
    return tf.reshape(pixels, tf.stack([stored[HEIGHT], stored[WIDTH], 3]))


def _seeds_of(seed: tf.Tensor | None, count: int) -> list[tf.Tensor | None]:
    """A seed for each image of a record."""
    if seed is None or count == 1:
        return [seed] * count
    return list(tf.unstack(tf.random.experimental.stateless_split(seed, count)))
