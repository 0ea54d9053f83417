"""Photos through TensorFlow: written resized, and read from the original files by `tf.data` and in TensorFlow 1's ways.

https://www.tensorflow.org/guide/data, https://www.tensorflow.org/tutorials/load_data/tfrecord,
https://www.tensorflow.org/tutorials/load_data/images and
https://github.com/tensorflow/docs/blob/master/site/en/r1/guide/performance/overview.md. What is written is resized with
antialiasing, as by Pillow and by Millrace: TensorFlow's default is quicker, and drops three pixels in four. Original
files are decoded at full size and resized in every epoch, `antialias` or not; what runs in Python is resized by Pillow,
which always antialiases. Readers for training take a random crop of 224 x 224, mirrored for every other photo.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from benchmarks.candidates.photos_pillow import SHORTER, files, resized
from benchmarks.candidates.tf1 import example, feed, feed_queue, of_bytes, of_int, run_queues, shuffled, tf1
from benchmarks.measure import BenchmarkTask

CROP = 224
SHAPE = [CROP, CROP, 3]


def labels_of(images: tf.data.Dataset, task: BenchmarkTask) -> Iterator[np.ndarray]:
    """The labels of (image, label) in batches."""
    for _, labels in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield labels.numpy()


def resized_in_graph(image: tf.Tensor, *, antialias: bool) -> tf.Tensor:
    """uint8 `[height, width, 3]` -> the same with a shorter side of SHORTER."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    small = tf.image.resize(
        image, tf.cast(tf.round(size * SHORTER / tf.reduce_min(size)), tf.int32), antialias=antialias
    )
    return tf.cast(tf.clip_by_value(tf.round(small), 0, 255) if antialias else small, tf.uint8)


def loaded(path: tf.Tensor, *, antialias: bool) -> tf.Tensor:
    """A JPEG file's image, decoded at full size and resized."""
    return resized_in_graph(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), antialias=antialias)


def loaded_at_a_scale(path: tf.Tensor) -> tf.Tensor:
    """A JPEG file's image, decoded at the smallest scale that is not less than what it is resized to."""
    data = tf.io.read_file(path)
    times = tf.reduce_min(tf.io.extract_jpeg_shape(data)[:2]) // SHORTER
    index = tf.reduce_sum(tf.cast(times >= [2, 4, 8], tf.int32))
    decoders = [lambda r=r: tf.io.decode_jpeg(data, channels=3, ratio=r) for r in (1, 2, 4, 8)]
    return resized_in_graph(tf.ensure_shape(tf.switch_case(index, decoders), [None, None, 3]), antialias=True)


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


def queue_runners(task: BenchmarkTask, *, producers: int = 1) -> Iterator[np.ndarray]:
    """`slice_input_producer`, decoding in the graph, `shuffle_batch` with several threads.

    Several producers, each with its share of the files and a thread of its own, are joined by `shuffle_batch_join`.
    """
    paths, labels = files(task.source)
    with tf.Graph().as_default():
        examples = []
        for i in range(producers):
            share = [[str(path) for path in paths[i::producers]], labels[i::producers]]
            path, label = tf1.train.slice_input_producer(share, num_epochs=task.epochs or None)
            examples.append([tf.ensure_shape(augmented(loaded(path, antialias=False)), SHAPE), label])
        images, batch_labels = shuffled(task, examples, least=1000, more=1000)
        yield from run_queues([batch_labels, images.op])


def arrays(task: BenchmarkTask) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled batches made by Pillow and numpy, on a thread for each core."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()
    with ThreadPoolExecutor() as threads:
        for _ in task.passes:
            order = rng.permutation(len(paths))
            for start in range(0, len(order), task.batch_size):
                places = order[start : start + task.batch_size]
                images = threads.map(lambda i: np.asarray(resized(paths[i])), places)
                yield np.stack([augmented_array(image, rng) for image in images]), np.take(labels, places)


def feed_dict(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """Each numpy batch is fed to the step that uses it."""
    return feed(arrays(task), tf.uint8, SHAPE)


def custom_runner(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """A background thread feeds numpy batches to a RandomShuffleQueue, from which steps take theirs."""
    return feed_queue(task, lambda: arrays(task), tf.uint8, SHAPE, capacity=2000, least=500)


def from_generator(task: BenchmarkTask, *, of_paths: bool = False) -> Iterator[np.ndarray]:
    """`tf.data.Dataset.from_generator`, over Pillow's images, or over paths that TensorFlow decodes on every core."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()

    def examples() -> Iterator[tuple[str | np.ndarray, int]]:
        for i in rng.permutation(len(paths)):
            yield str(paths[i]) if of_paths else augmented_array(np.asarray(resized(paths[i])), rng), labels[i]

    example = tf.TensorSpec([], tf.string) if of_paths else tf.TensorSpec(SHAPE, tf.uint8)
    signature = (example, tf.TensorSpec([], tf.int64))
    images = tf.data.Dataset.from_generator(examples, output_signature=signature).repeat(task.epochs or None)
    if of_paths:
        images = images.map(
            lambda path, label: (augmented(loaded(path, antialias=False)), label), num_parallel_calls=tf.data.AUTOTUNE
        )
    return labels_of(images, task)
