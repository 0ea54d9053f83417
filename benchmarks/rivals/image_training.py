"""What every reader of images does for training: a random crop of 224 x 224, mirrored for every other image."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

CROP = 224


def augmented(image: tf.Tensor) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> uint8 `[CROP, CROP, 3]`, in a graph."""
    return tf.image.random_flip_left_right(tf.image.random_crop(image, [CROP, CROP, 3]))


def augmented_array(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same in numpy."""
    top, left = (int(rng.integers(0, side - CROP + 1)) for side in image.shape[:2])
    crop = image[top : top + CROP, left : left + CROP]
    return crop[:, ::-1] if rng.random() < 0.5 else crop
