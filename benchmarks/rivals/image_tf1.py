"""Images the ways of TensorFlow 1, and by generators, from the original files.

https://github.com/tensorflow/docs/blob/master/site/en/r1/guide/performance/overview.md and its time's reading guide.
What runs in the graph resizes by `tf.image.resize` as it is; what runs in Python by Pillow, which always antialiases.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from benchmarks.rivals.image_pillow import files
from benchmarks.rivals.image_pillow import resized as pillow_resized
from benchmarks.rivals.image_tf_data import CROP, augmented, augmented_array, labels_of, loaded_plain
from benchmarks.rivals.tf1 import feed, feed_queue, run_queues, shuffled, tf1
from benchmarks.task import Task

SHAPE = [CROP, CROP, 3]
THREADS = 4


def _queues(task: Task, producers: int) -> Iterator[np.ndarray]:
    paths, labels = files(task.source)
    with tf.Graph().as_default():
        examples = []
        for i in range(producers):
            share = [[str(p) for p in paths[i::producers]], labels[i::producers]]
            path, label = tf1.train.slice_input_producer(share, num_epochs=task.epochs or None)
            examples.append([tf.ensure_shape(augmented(loaded_plain(path)), SHAPE), label])
        images, of = shuffled(task, examples, least=1000, more=1000, threads=THREADS)
        yield from run_queues([of, images.op])


def queue_runner(task: Task) -> Iterator[np.ndarray]:
    """`slice_input_producer`, decoding in the graph, `shuffle_batch` with several threads."""
    return _queues(task, 1)


def queue_join(task: Task) -> Iterator[np.ndarray]:
    """`shuffle_batch_join`: several producers, each with its share of the files and a thread of its own."""
    return _queues(task, THREADS)


def arrays(task: Task) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled batches made by Pillow and numpy, on a thread for each core."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()
    with ThreadPoolExecutor() as threads:
        for _ in task.passes:
            order = rng.permutation(len(paths))
            for start in range(0, len(order), task.batch_size):
                rows = order[start : start + task.batch_size]
                images = threads.map(lambda i: np.asarray(pillow_resized(paths[i])), rows)
                yield np.stack([augmented_array(image, rng) for image in images]), np.take(labels, rows)


def feed_dict(task: Task) -> Iterator[np.ndarray]:
    """Each numpy batch is fed to the step that uses it."""
    return feed(arrays(task), tf.uint8, SHAPE)


def custom_runner(task: Task) -> Iterator[np.ndarray]:
    """A background thread feeds numpy batches to a RandomShuffleQueue, from which steps take theirs."""
    return feed_queue(task, lambda: arrays(task), tf.uint8, SHAPE, capacity=2000, least=500)


def from_generator(task: Task) -> Iterator[np.ndarray]:
    """`tf.data.Dataset.from_generator` over Pillow's images."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()

    def examples() -> Iterator[tuple[np.ndarray, int]]:
        for i in rng.permutation(len(paths)):
            yield augmented_array(np.asarray(pillow_resized(paths[i])), rng), labels[i]

    signature = (tf.TensorSpec(SHAPE, tf.uint8), tf.TensorSpec([], tf.int64))
    images = tf.data.Dataset.from_generator(examples, output_signature=signature)
    return labels_of(images.repeat(task.epochs or None), task)


def from_generator_of_paths(task: Task) -> Iterator[np.ndarray]:
    """The generator gives paths alone; TensorFlow reads and decodes them, on every core."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()

    def examples() -> Iterator[tuple[str, int]]:
        for i in rng.permutation(len(paths)):
            yield str(paths[i]), labels[i]

    signature = (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64))
    images = (
        tf.data.Dataset.from_generator(examples, output_signature=signature)
        .repeat(task.epochs or None)
        .map(lambda path, label: (augmented(loaded_plain(path)), label), num_parallel_calls=tf.data.AUTOTUNE)
    )
    return labels_of(images, task)
