"""What readers of images do for training: a random crop of 224 x 224, mirrored for every other image.

Those that read original files through TensorFlow first resize them as most write it, `tf.image.resize(image, size)`:
without antialiasing, which is quicker than this project's way, and leaves out three pixels in four.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.rivals.image_tf_data import size_of

CROP = 224


def resized_plain(image: tf.Tensor) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> the same with a shorter side of 256, in a graph."""
    return tf.cast(tf.image.resize(image, size_of(image)), tf.uint8)


def loaded_plain(path: tf.Tensor) -> tf.Tensor:
    """A JPEG file's image, resized so."""
    return resized_plain(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))


def augmented(image: tf.Tensor) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> uint8 `[CROP, CROP, 3]`, in a graph."""
    return tf.image.random_flip_left_right(tf.image.random_crop(image, [CROP, CROP, 3]))


def augmented_array(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same in numpy."""
    top, left = (int(rng.integers(0, side - CROP + 1)) for side in image.shape[:2])
    crop = image[top : top + CROP, left : left + CROP]
    return crop[:, ::-1] if rng.random() < 0.5 else crop
