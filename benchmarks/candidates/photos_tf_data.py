"""`tf.data` over photos: a loop that writes them resized, and reading the original files as tutorials do.

https://www.tensorflow.org/guide/data, https://www.tensorflow.org/tutorials/load_data/tfrecord and
https://www.tensorflow.org/tutorials/load_data/images. What is written is resized with antialiasing, as by Pillow and by
Millrace: TensorFlow's default is quicker, and drops three pixels in four. Original files are decoded at full size and
resized in every epoch, `antialias` or not. Readers for training take a random crop of 224 x 224, mirrored for every
other photo.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.candidates.csv_python_loop import example, of_bytes, of_int
from benchmarks.candidates.photos_pillow import SHORTER, files
from benchmarks.measure import BenchmarkTask

CROP = 224


def labels_of(images: tf.data.Dataset, task: BenchmarkTask) -> Iterator[np.ndarray]:
    """The labels of (image, label) in batches."""
    for _, labels in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield labels.numpy()


def resized(image: tf.Tensor, *, antialias: bool) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> the same with a shorter side of SHORTER."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    small = tf.image.resize(
        image, tf.cast(tf.round(size * SHORTER / tf.reduce_min(size)), tf.int32), antialias=antialias
    )
    return tf.cast(tf.clip_by_value(tf.round(small), 0, 255) if antialias else small, tf.uint8)


def loaded(path: tf.Tensor, *, antialias: bool) -> tf.Tensor:
    """A JPEG file's image, decoded at full size and resized."""
    return resized(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), antialias=antialias)


def loaded_at_a_scale(path: tf.Tensor) -> tf.Tensor:
    """A JPEG file's image, decoded at the smallest scale that is not less than what it is resized to."""
    data = tf.io.read_file(path)
    times = tf.reduce_min(tf.io.extract_jpeg_shape(data)[:2]) // SHORTER
    index = tf.reduce_sum(tf.cast(times >= [2, 4, 8], tf.int32))
    decoders = [lambda r=r: tf.io.decode_jpeg(data, channels=3, ratio=r) for r in (1, 2, 4, 8)]
    return resized(tf.ensure_shape(tf.switch_case(index, decoders), [None, None, 3]), antialias=True)


def encoded(source: str, *, scaled: bool) -> tf.data.Dataset:
    """Every photo as (JPEG, the number of its class)."""
    paths, labels = files(source)

    def work(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = loaded_at_a_scale(path) if scaled else loaded(path, antialias=True)
        return tf.io.encode_jpeg(image, quality=95), label

    images = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels)).shuffle(len(paths))
    return images.map(work, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def write(task: BenchmarkTask, *, scaled: bool = False) -> None:
    """Writes the photos of a folder of class folders; `scaled`: JPEGs are decoded at a scale."""
    with tf.io.TFRecordWriter(os.path.join(task.output, "train.tfrecord")) as writer:
        for image, label in encoded(task.source, scaled=scaled).as_numpy_iterator():
            writer.write(example({"image/encoded": of_bytes(image), "label": of_int(label)}))


def write_nothing(task: BenchmarkTask, *, scaled: bool = False) -> None:
    """The bare rate of decoding, resizing and encoding: no records, and nothing is written."""
    for _ in encoded(task.source, scaled=scaled):
        pass


def augmented(image: tf.Tensor) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> uint8 `[CROP, CROP, 3]`, in a graph."""
    return tf.image.random_flip_left_right(tf.image.random_crop(image, [CROP, CROP, 3]))


def augmented_array(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same in numpy."""
    top, left = (int(rng.integers(0, side - CROP + 1)) for side in image.shape[:2])
    crop = image[top : top + CROP, left : left + CROP]
    return crop[:, ::-1] if rng.random() < 0.5 else crop


def read(task: BenchmarkTask, *, antialias: bool = True) -> Iterator[np.ndarray]:
    """Batches of the original files, decoded and resized in every epoch."""
    paths, labels = files(task.source)
    images = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels)).shuffle(len(paths))
    images = images.repeat(task.epochs or None).map(
        lambda path, label: (augmented(loaded(path, antialias=antialias)), label),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    return labels_of(images, task)
