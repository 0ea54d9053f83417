"""Photos in TensorFlow 1's ways, and by generators, from the original files.

https://github.com/tensorflow/docs/blob/master/site/en/r1/guide/performance/overview.md and its time's reading guide.
What runs in the graph resizes by `tf.image.resize` as it is; what runs in Python by Pillow, which always antialiases.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from benchmarks.candidates.photos_pillow import files, resized
from benchmarks.candidates.photos_tf_data import CROP, augmented, augmented_array, labels_of, loaded
from benchmarks.candidates.tf1 import feed, feed_queue, run_queues, shuffled, tf1
from benchmarks.measure import BenchmarkTask

SHAPE = [CROP, CROP, 3]


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
