"""Crops, flips and recolours a stored image to make the image that the model sees.

TRAIN passes a seed for each image and changes the image at random. EVAL, PREDICT and serving pass no seed and get the
centre crop without other changes, from the same functions. All functions are pure and take a single image. They give
the same result eagerly, inside `tf.data` and in a TF1 graph. Images are RGB, uint8. The EXIF orientation is ignored in
training and in serving, because TensorFlow's decoders ignore it.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable

import tensorflow as tf

from trainer.spec.hparams import Augmentation

# Set explicitly, so that training and serving decode the same pixels whatever the library's default is.
_DCT = "INTEGER_ACCURATE"
_MARGIN = 2  # pixels: one sample of a colour channel at half the resolution
_WAYS = 3  # the number of random steps; each has a seed of its own


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentOptions(Augmentation):
    """The changes that are made to an image. All changes except the crop to `size` are made in TRAIN only.

    Attributes:
      size: height and width of the crop, in pixels.
      color_jitter: brightness, contrast and saturation are scaled by random factors from `1 - color_jitter` to
        `1 + color_jitter`; the hue is turned by up to `color_jitter / 10` of the colour circle.
      resized_crop: the crop takes a random share of the image's area, from this share to all of it, at an aspect ratio
        from 3:4 to 4:3. It is then resized to `size` (Szegedy et al., "Going deeper with convolutions", section 6).

    Raises:
      ValueError: a value is out of its range.
    """

    size: tuple[int, int]

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise ValueError(f"size={self.size}: expected a height and a width, each of 1 or more")
        super().__post_init__()


def augment_options(augmentation: Augmentation, size: tuple[int, int]) -> AugmentOptions:
    """Combines the settings of `--augment` with the size of the crop, height and width in pixels."""
    return AugmentOptions(size=size, **dataclasses.asdict(augmentation))


def seeds(seed: int | None = None, *, begin: int = 0) -> tf.data.Dataset:
    """Returns an endless dataset of seeds, int64 `[2]`. Zip it with the images of TRAIN, over all epochs.

    Args:
      seed: makes the sequence repeatable; None draws a seed.
      begin: how many seeds at the beginning are skipped, because their images were read before.
    """
    drawn = random.SystemRandom().getrandbits(30) if seed is None else seed % (1 << 30)
    # The seeds are pairs of consecutive integers: the drawn number fills the high bits, a counter the low bits.
    return tf.data.Dataset.range((drawn << 32) + 2 * begin, tf.int64.max).batch(2, drop_remainder=True)


def augment_jpeg(encoded: tf.Tensor, options: AugmentOptions, *, seed: tf.Tensor | None) -> tf.Tensor:
    """Turns a stored JPEG into the image that the model sees. Only the crop is decoded, to save time.

    Args:
      encoded: the JPEG, string `[]`.
      options: the changes to make.
      seed: integers `[2]` in TRAIN; None for the centre crop.

    Returns:
      uint8 `[height, width, 3]`.

    Raises:
      tf.errors.InvalidArgumentError: not a JPEG, or smaller than the crop.
    """
    return _augmented(functools.partial(_decode, encoded), tf.io.extract_jpeg_shape(encoded), options, seed)


def augment_raw(image: tf.Tensor, options: AugmentOptions, *, seed: tf.Tensor | None) -> tf.Tensor:
    """Turns decoded pixels into the image that the model sees.

    Args:
      image: uint8 `[height, width, 3]`.
      options: the changes to make.
      seed: integers `[2]` in TRAIN; None for the centre crop.

    Returns:
      uint8 `[height, width, 3]`, of the crop's size.
    """
    return _augmented(functools.partial(_cut, image), tf.shape(image), options, seed)


def _augmented(
    window_at: Callable[[tf.Tensor], tf.Tensor], shape: tf.Tensor, options: AugmentOptions, seed: tf.Tensor | None
) -> tf.Tensor:
    """Augments an image; `window_at` returns the pixels of a window (top, left, height, width) of the image."""
    if seed is None or options.resized_crop is None:
        window = crop_window(shape, size=options.size, seed=_stream(seed, 0))
        image = window_at(window)
    else:
        window = resized_crop_window(shape, least_area=options.resized_crop, seed=_stream(seed, 0))
        image = _as_pixels(tf.image.resize(window_at(window), options.size, "bilinear", antialias=True))
    image = tf.ensure_shape(image, [*options.size, 3])
    if seed is not None and options.flip:
        image = flip(image, seed=_stream(seed, 1))
    if seed is not None and options.color_jitter:
        image = color_jitter(image, strength=options.color_jitter, seed=_stream(seed, 2))
    return image


def crop_window(shape: tf.Tensor, *, size: tuple[int, int], seed: tf.Tensor | None) -> tf.Tensor:
    """Chooses where to crop: at random with a seed, at the centre (rounded up and left) without a seed.

    Args:
      shape: the shape of the image: int32 `[height, width, ...]`.
      size: height and width of the crop.
      seed: integers `[2]`, or None.

    Returns:
      int32 `[4]`: top, left, height, width.

    Raises:
      tf.errors.InvalidArgumentError: the image is smaller than the crop.
    """
    room = shape[:2] - tf.constant(size, tf.int32)
    # The raw Assert is a single op; `tf.debugging` would add a conditional to a graph.
    too_small = (
        f"the image is smaller than the crop of {size[0]}x{size[1]}: resize images to at least that when ingesting"
    )
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.reduce_all(room >= 0), data=[too_small])]):
        room = tf.identity(room)
    if seed is None:
        corner = room // 2
    else:  # fractions, since a draw of integers takes a single bound for both sides
        fractions = tf.random.stateless_uniform([2], seed)
        corner = tf.minimum(tf.cast(fractions * tf.cast(room + 1, tf.float32), tf.int32), room)
    return tf.concat([corner, tf.constant(size, tf.int32)], axis=0)


def resized_crop_window(shape: tf.Tensor, *, least_area: float, seed: tf.Tensor) -> tf.Tensor:
    """Chooses at random where to crop, for a crop that is then resized; see `AugmentOptions.resized_crop`.

    Args:
      shape: the shape of the image: int32 `[height, width, channels]`.
      least_area: the smallest share of the image's area that the crop takes.
      seed: integers `[2]`.

    Returns:
      int32 `[4]`: top, left, height, width. If no crop fits in ten attempts, the whole image.
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([1, 0, 4]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(least_area, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def decode_whole(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes a whole JPEG, uint8 `[height, width, 3]`. A crop of it has the same pixels as `augment_jpeg` decodes."""
    return tf.io.decode_jpeg(encoded, channels=3, dct_method=_DCT)


def flip(image: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
    """Swaps left and right of an image `[height, width, 3]` for half of the seeds."""
    return tf.image.stateless_random_flip_left_right(image, seed)


def color_jitter(image: tf.Tensor, *, strength: float, seed: tf.Tensor) -> tf.Tensor:
    """Changes brightness, contrast, saturation and hue at random, in this order.

    Args:
      image: uint8 `[height, width, 3]`.
      strength: the size of the changes, from 0 to below 1; see `AugmentOptions.color_jitter`.
      seed: integers `[2]`.
    """
    low, high = 1.0 - strength, 1.0 + strength
    draws = tf.random.stateless_uniform([4], seed)
    factors = low + (high - low) * draws[:3]
    x = tf.cast(image, tf.float32) / 255.0
    x *= factors[0]
    mean = tf.reduce_mean(tf.image.rgb_to_grayscale(x))
    # Contrast: scales the distance of each pixel from the mean brightness.
    x = tf.clip_by_value(mean + (x - mean) * factors[1], 0.0, 1.0)
    gray = tf.image.rgb_to_grayscale(x)
    # Saturation: scales the distance of each pixel from its own grey value.
    x = tf.clip_by_value(gray + (x - gray) * factors[2], 0.0, 1.0)
    x = tf.image.adjust_hue(x, (2.0 * draws[3] - 1.0) * strength / 10.0)
    return _as_pixels(x * 255.0)


def _stream(seed: tf.Tensor | None, way: int) -> tf.Tensor | None:
    """Derives a seed for one random step of an image, so that the steps draw different numbers."""
    return None if seed is None else tf.random.experimental.stateless_split(seed, _WAYS)[way]


def _decode(encoded: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Decodes a window of a JPEG, with exactly the pixels that decoding the whole image would give.

    libjpeg interpolates colours between neighbouring columns, and a window lacks the neighbours of its outer columns.
    The window is therefore decoded with a margin, which is then cut off.
    """
    shape = tf.io.extract_jpeg_shape(encoded)[:2]
    begin = tf.maximum(window[:2] - _MARGIN, 0)
    end = tf.minimum(window[:2] + window[2:] + _MARGIN, shape)
    outer = tf.concat([begin, end - begin], axis=0)
    decoded = tf.image.decode_and_crop_jpeg(encoded, outer, channels=3, dct_method=_DCT)
    return _cut(tf.ensure_shape(decoded, [None, None, 3]), tf.concat([window[:2] - begin, window[2:]], axis=0))


def _cut(image: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of a window (top, left, height, width)."""
    cut = tf.slice(image, tf.concat([window[:2], [0]], 0), tf.concat([window[2:], [-1]], 0))
    return tf.ensure_shape(cut, [None, None, image.shape[-1]])


def _as_pixels(x: tf.Tensor) -> tf.Tensor:
    """Rounds values and limits them to 0 to 255, as uint8."""
    return tf.cast(tf.round(tf.clip_by_value(x, 0.0, 255.0)), tf.uint8)
