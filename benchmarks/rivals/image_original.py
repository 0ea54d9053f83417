"""`tf.data` over the original files, which are decoded whole and resized anew in every epoch, as tutorials do it.

https://www.tensorflow.org/tutorials/load_data/images. `read` resizes with antialiasing, which gives the pixels
that this project stores; `read_rough` as most write it, without, which is quicker and worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.rivals.image_pillow import files
from benchmarks.rivals.image_tf_data import SHORTER, resized
from benchmarks.rivals.image_training import augmented
from benchmarks.task import Task


def _rough(path: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    size = tf.cast(tf.round(size * SHORTER / tf.reduce_min(size)), tf.int32)
    return tf.cast(tf.image.resize(image, size), tf.uint8)


def _batches(task: Task, load: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[np.ndarray]:
    paths, labels = files(task.source)
    images = (
        tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
        .shuffle(len(paths))
        .repeat(task.epochs or None)
        .map(
            lambda path, label: (augmented(load(path)), label), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
    )
    for _, of in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield of.numpy()


def read(task: Task) -> Iterator[np.ndarray]:
    """Batches of the original files."""
    return _batches(task, resized)


def read_rough(task: Task) -> Iterator[np.ndarray]:
    """The same, resized without antialiasing."""
    return _batches(task, _rough)
