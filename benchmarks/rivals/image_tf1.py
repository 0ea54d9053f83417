"""Images the ways of TensorFlow 1, on today's TensorFlow through `tf.compat.v1`, from the original files.

https://github.com/tensorflow/docs/blob/master/site/en/r1/guide/performance/overview.md and its time's reading guide.
A step computes the complete batch for a model in the graph, and fetches only its labels.
What runs in the graph resizes by `tf.image.resize` as it is; what runs in Python by Pillow, which always antialiases.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from benchmarks.rivals.image_pillow import files
from benchmarks.rivals.image_pillow import resized as pillow_resized
from benchmarks.rivals.image_training import CROP, augmented, augmented_array, loaded_plain
from benchmarks.rivals.tf1 import epochs_of, run_queues
from benchmarks.task import Task

tf1 = tf.compat.v1
SHAPE = [CROP, CROP, 3]
THREADS = 4


def queue_runner(task: Task) -> Iterator[np.ndarray]:
    """`slice_input_producer`, decoding in the graph, `shuffle_batch` with several threads."""
    paths, labels = files(task.source)
    with tf.Graph().as_default():
        path, label = tf1.train.slice_input_producer([[str(p) for p in paths], labels], num_epochs=task.epochs or None)
        image = tf.ensure_shape(augmented(loaded_plain(path)), SHAPE)
        images, of = tf1.train.shuffle_batch(
            [image, label],
            task.batch_size,
            capacity=1000 + 3 * task.batch_size,
            min_after_dequeue=1000,
            num_threads=THREADS,
            allow_smaller_final_batch=True,
        )
        yield from run_queues([of, images.op])


def queue_join(task: Task) -> Iterator[np.ndarray]:
    """`shuffle_batch_join`: several producers, each with its share of the files and a thread of its own."""
    paths, labels = files(task.source)
    with tf.Graph().as_default():
        examples = []
        for i in range(THREADS):
            share = [[str(p) for p in paths[i::THREADS]], labels[i::THREADS]]
            path, label = tf1.train.slice_input_producer(share, num_epochs=task.epochs or None)
            examples.append([tf.ensure_shape(augmented(loaded_plain(path)), SHAPE), label])
        images, of = tf1.train.shuffle_batch_join(
            examples,
            task.batch_size,
            capacity=1000 + 3 * task.batch_size,
            min_after_dequeue=1000,
            allow_smaller_final_batch=True,
        )
        yield from run_queues([of, images.op])


def arrays(task: Task) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled batches made by Pillow and numpy, on a thread for each core."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()
    with ThreadPoolExecutor() as threads:
        for _ in epochs_of(task):
            order = rng.permutation(len(paths))
            for start in range(0, len(order), task.batch_size):
                rows = order[start : start + task.batch_size]
                images = threads.map(lambda i: np.asarray(pillow_resized(paths[i])), rows)
                yield np.stack([augmented_array(image, rng) for image in images]), np.take(labels, rows)


def feed_dict(task: Task) -> Iterator[np.ndarray]:
    """Each numpy batch is fed to the step that uses it."""
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.uint8, [None, *SHAPE])
        labels = tf1.placeholder(tf.int64, [None])
        step = [tf.identity(labels), tf.identity(images).op]
        for batch, of in arrays(task):
            yield session.run(step, {images: batch, labels: of})[0]


def custom_runner(task: Task) -> Iterator[np.ndarray]:
    """A background thread feeds numpy batches to a RandomShuffleQueue, from which steps take theirs."""
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.uint8, [None, *SHAPE])
        labels = tf1.placeholder(tf.int64, [None])
        queue = tf.queue.RandomShuffleQueue(2000, 500, [tf.uint8, tf.int64], [SHAPE, []])
        enqueue, close = queue.enqueue_many([images, labels]), queue.close()
        batch, of = queue.dequeue_up_to(task.batch_size)

        def feed() -> None:
            for pixels, classes in arrays(task):
                session.run(enqueue, {images: pixels, labels: classes})
            session.run(close)

        threading.Thread(target=feed, daemon=True).start()
        try:
            while True:
                yield session.run([of, batch.op])[0]
        except tf.errors.OutOfRangeError:
            return


def from_generator(task: Task) -> Iterator[np.ndarray]:
    """`tf.data.Dataset.from_generator` over Pillow's images."""
    paths, labels = files(task.source)
    rng = np.random.default_rng()

    def examples() -> Iterator[tuple[np.ndarray, int]]:
        for i in rng.permutation(len(paths)):
            yield augmented_array(np.asarray(pillow_resized(paths[i])), rng), labels[i]

    signature = (tf.TensorSpec(SHAPE, tf.uint8), tf.TensorSpec([], tf.int64))
    images = tf.data.Dataset.from_generator(examples, output_signature=signature).repeat(task.epochs or None)
    for _, of in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield of.numpy()


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
    for _, of in images.batch(task.batch_size).prefetch(tf.data.AUTOTUNE):
        yield of.numpy()
