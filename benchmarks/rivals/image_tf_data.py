"""`tf.data` over images: a loop that writes them resized, and reading the original files as tutorials do.

https://www.tensorflow.org/guide/data, https://www.tensorflow.org/tutorials/load_data/tfrecord and
https://www.tensorflow.org/tutorials/load_data/images. What is written is resized with antialiasing, as by Pillow and by
this project: TensorFlow's default is quicker, and drops three pixels in four. Original files are decoded at full size
and resized in every epoch: by `read_plain` as most write it, `tf.image.resize(image, size)`, and by `read` with
antialiasing, which takes longer. Readers of images for training take a random crop of 224 x 224, mirrored for every
other image.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.rivals.csv_python_loop import example, of_bytes, of_int
from benchmarks.rivals.image_pillow import files
from benchmarks.task import Task

SHORTER = 256  # the resized image's shorter side


def labels_of(images: tf.data.Dataset, task: Task) -> Iterator[np.ndarray]:
    """The labels of (image, label) in batches."""
    for _, labels in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield labels.numpy()


def size_of(image: tf.Tensor) -> tf.Tensor:
    """The height and width of an image `[height, width, 3]` once its shorter side is SHORTER, int32 `[2]`."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    return tf.cast(tf.round(size * SHORTER / tf.reduce_min(size)), tf.int32)


def antialiased(image: tf.Tensor) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> the same with a shorter side of SHORTER."""
    small = tf.image.resize(image, size_of(image), antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(small), 0, 255), tf.uint8)


def resized(path: tf.Tensor) -> tf.Tensor:
    """A file's image, uint8 `[height, width, 3]`."""
    return antialiased(tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False))


def resized_scaled(path: tf.Tensor) -> tf.Tensor:
    """A JPEG file's image, decoded at the smallest scale that is not less than what it is resized to."""
    data = tf.io.read_file(path)
    times = tf.reduce_min(tf.io.extract_jpeg_shape(data)[:2]) // SHORTER
    index = tf.reduce_sum(tf.cast(times >= [2, 4, 8], tf.int32))
    decoders = [lambda r=r: tf.io.decode_jpeg(data, channels=3, ratio=r) for r in (1, 2, 4, 8)]
    return antialiased(tf.ensure_shape(tf.switch_case(index, decoders), [None, None, 3]))


def encoded(source: str, resize: Callable[[tf.Tensor], tf.Tensor] = resized) -> tf.data.Dataset:
    """Every image as (JPEG, the number of its class)."""
    paths, labels = files(source)

    def work(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.io.encode_jpeg(resize(path), quality=95), label

    images = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels)).shuffle(len(paths))
    return images.map(work, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def write(task: Task) -> None:
    """Writes the images of a folder of class folders."""
    _write(task, resized)


def write_scaled(task: Task) -> None:
    """The same, its JPEGs decoded at a scale."""
    _write(task, resized_scaled)


def _write(task: Task, resize: Callable[[tf.Tensor], tf.Tensor]) -> None:
    with tf.io.TFRecordWriter(os.path.join(task.output, "train.tfrecord")) as writer:
        for image, label in encoded(task.source, resize).as_numpy_iterator():
            writer.write(example({"image/encoded": of_bytes(image), "label": of_int(label)}))


def write_nothing(task: Task) -> None:
    """The same without records: the bare rate of the decoding, the resizing and the encoding."""
    for _ in encoded(task.source):
        pass


def write_nothing_scaled(task: Task) -> None:
    """The bare rate, the JPEGs decoded at a scale."""
    for _ in encoded(task.source, resized_scaled):
        pass


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
    return labels_of(images, task)


def read(task: Task) -> Iterator[np.ndarray]:
    """Batches of the original files, resized with antialiasing."""
    return _batches(task, resized)


def read_plain(task: Task) -> Iterator[np.ndarray]:
    """The same, resized as most do it."""
    return _batches(task, loaded_plain)
