"""Turns stored image records into what a model sees: `image`, and the label.

The same function, `stored_image`, makes the image in every mode. With a seed (TRAIN) it crops and changes the image at
random; without a seed it takes the centre crop. Serving calls it on the output of the ingest graph. Inside the model,
`normalized` then scales each channel by the mean and deviation of the train split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_transform as tft

from schemas.spec.images import CLASS, ENCODED, FORMAT, HEIGHT, PAIR, TEXT, WIDTH, ImageOptions
from trainer.images.augment import AugmentOptions, augment_jpeg, augment_raw, decode_whole
from trainer.spec.transform_graph import transformed

PIXELS = "pixels"  # the transform graph's one feature: float32 [3], a pixel


def normalized(images: tf.Tensor, transform_output: tft.TFTransformOutput) -> tf.Tensor:
    """Normalises a batch's pixels by the dataset's own tf.Transform graph. Call this inside a `model_fn`.

    Args:
      images: uint8 or float32 `[batch, height, width, 3]`, values from 0 to 255.
      transform_output: the transform graph of the dataset: `tft.TFTransformOutput(task_spec.run_dir)`.

    Returns:
      float32 `[batch, height, width, 3]`, with the static shape of `images`.
    """
    flat = tf.reshape(tf.cast(images, tf.float32), [-1, 3])
    pixels = transformed(transform_output, {PIXELS: flat})[PIXELS]
    return tf.ensure_shape(tf.reshape(pixels, tf.shape(images)), images.shape)


_DTYPES = {ENCODED: tf.string, HEIGHT: tf.int64, WIDTH: tf.int64, FORMAT: tf.string, TEXT: tf.string, CLASS: tf.int64}


def record_spec(images: ImageOptions, *, everything: bool = False) -> dict[str, Any]:
    """Returns the feature spec that parses stored image records.

    Args:
      images: how images are stored: as JPEG or as raw pixels.
      everything: parse all fields of a record except the file's name; False: only the fields that a model needs.
    """
    needed = (ENCODED, CLASS) if images.store == "jpeg" else (ENCODED, HEIGHT, WIDTH, CLASS)
    return {key: tf.io.FixedLenFeature([], _DTYPES[key]) for key in (_DTYPES if everything else needed)}


def image_examples(
    records: tf.data.Dataset,
    images: ImageOptions,
    options: AugmentOptions,
    *,
    seeds: tf.data.Dataset | None = None,
    deterministic: bool = True,
) -> tf.data.Dataset:
    """Decodes, crops and, with seeds, augments image records in parallel.

    Args:
      records: serialized records, string `[]`.
      images: how images are stored.
      options: the size of the crop, and the changes that training makes.
      seeds: integers `[2]`, one for each record; None: the centre crop and no other change.
      deterministic: keep the order of the records.

    Returns:
      A Dataset of (features, label): `image`, uint8 `[height, width, 3]`, and the class id, int64 `[]`.
    """
    spec = record_spec(images)

    def example(serialized: tf.Tensor, seed: tf.Tensor | None = None) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        stored = tf.io.parse_single_example(serialized, spec)
        return {"image": stored_image(stored, images, options, seed=seed)}, stored[CLASS]

    rows = records if seeds is None else tf.data.Dataset.zip((records, seeds))
    return rows.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


class Window(NamedTuple):
    """Decoded images in one piece of memory.

    Attributes:
      pixels: the pixels of all images, one image after the other, uint8 `[bytes]`.
      ends: for each image, the index in `pixels` after its last byte, int64 `[n]`.
      shapes: height, width and channels of each image, int64 `[n, 3]`.
      labels: the class ids, int64 `[n]`.
    """

    pixels: tf.Tensor
    ends: tf.Tensor
    shapes: tf.Tensor
    labels: tf.Tensor

    def image(self, place: tf.Tensor, options: AugmentOptions, *, seed: tf.Tensor | None) -> tf.Tensor:
        """Returns one image of the window as the model sees it, uint8 `[height, width, 3]`.

        Args:
          place: the index of the image in the window, int64 `[]`.
          options: the size of the crop, and the changes that training makes.
          seed: integers `[2]` in training, None elsewhere.
        """
        shape, end = self.shapes[place], self.ends[place]
        # `pixels` holds all images one after another, so this image is the bytes before its end.
        whole = tf.reshape(self.pixels[end - tf.reduce_prod(shape) : end], shape)
        return augment_raw(tf.ensure_shape(whole, [None, None, 3]), options, seed=seed)


def decoded_windows(records: tf.data.Dataset, images: ImageOptions, rows: int) -> tf.data.Dataset:
    """Decodes records and packs every `rows` images into a `Window`.

    Args:
      records: serialized records, string `[]`; finite.
      images: how images are stored.
      rows: the number of images in a window; the last window may have fewer.
    """
    spec = record_spec(images)

    def example(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        stored = tf.io.parse_single_example(serialized, spec)
        image = _whole(stored, images)
        return tf.reshape(image, [-1]), tf.shape(image, tf.int64), stored[CLASS]

    examples = records.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    # ragged_batch concatenates flat images of different sizes without padding; `row_splits` holds their borders.
    return examples.ragged_batch(rows, row_splits_dtype=tf.int64).map(
        lambda pixels, shapes, labels: Window(pixels.values, pixels.row_splits[1:], shapes, labels)
    )


def window_examples(
    places: tf.data.Dataset, options: AugmentOptions, *, seeds: tf.data.Dataset, deterministic: bool = True
) -> tf.data.Dataset:
    """Crops and augments images that are already decoded.

    Args:
      places: a Dataset of (`Window`, the index of an image in it, int64 `[]`).
      options: the size of the crop, and the changes that training makes.
      seeds: integers `[2]`, one for each image.
      deterministic: keep the order of the images.

    Returns:
      A Dataset of (features, label): `image`, uint8 `[height, width, 3]`, and the class id, int64 `[]`.
    """

    def example(chosen: tuple[Window, tf.Tensor], seed: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        window, place = chosen
        return {"image": window.image(place, options, seed=seed)}, window.labels[place]

    both = tf.data.Dataset.zip((places, seeds))
    return both.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


def pair_examples(
    pairs: tf.data.Dataset,
    options: AugmentOptions,
    *,
    seeds: tf.data.Dataset | None = None,
    deterministic: bool = True,
) -> tf.data.Dataset:
    """Crops and, with seeds, augments both images of pairs.

    Args:
      pairs: a Dataset of (`Window`, (indices of two images in the window, int64 `[2]`, 1 if they match else 0, int64
        `[]`)).
      options: the size of the crop, and the changes that training makes.
      seeds: integers `[2]`, one for each pair; None: the centre crop and no other change.
      deterministic: keep the order of the pairs.

    Returns:
      A Dataset of (features, label): `left` and `right`, uint8 `[height, width, 3]`, and 1 if they match, else 0.
    """

    def example(
        pair: tuple[Window, tuple[tf.Tensor, tf.Tensor]], seed: tf.Tensor | None = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        window, (places, same) = pair
        both = [None, None] if seed is None else tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        return {name: window.image(places[i], options, seed=both[i]) for i, name in enumerate(PAIR)}, same

    rows = tf.data.Dataset.zip((pairs,) if seeds is None else (pairs, seeds))
    return rows.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


def stored_image(
    stored: Mapping[str, Any], images: ImageOptions, options: AugmentOptions, *, seed: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns one stored image as the model sees it.

    Args:
      stored: the parsed record: `image/encoded`, and for raw pixels `image/height` and `image/width`, scalars.
      images: how the image is stored: as JPEG or as raw pixels.
      options: the size of the crop, and the changes that training makes.
      seed: integers `[2]` in training, None elsewhere.

    Returns:
      uint8 `[height, width, 3]`.
    """
    if images.store == "jpeg":
        return augment_jpeg(stored[ENCODED], options, seed=seed)
    return augment_raw(_whole(stored, images), options, seed=seed)


def _whole(stored: Mapping[str, Any], images: ImageOptions) -> tf.Tensor:
    """Decodes a whole stored image, uint8 `[height, width, 3]`."""
    if images.store == "jpeg":
        return decode_whole(stored[ENCODED])
    pixels = tf.io.decode_raw(stored[ENCODED], tf.uint8)
    return tf.reshape(pixels, tf.stack([stored[HEIGHT], stored[WIDTH], 3]))
