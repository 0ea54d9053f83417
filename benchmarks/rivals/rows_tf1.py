"""Rows the ways of TensorFlow 1, on today's TensorFlow through `tf.compat.v1`.

A step computes the complete batch for a model in the graph, and fetches only its labels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_transform as tft

from benchmarks.rivals.tf1 import epochs_of, run_queues
from benchmarks.tables import TABLES
from benchmarks.task import Task
from schemas.dataset import open_dataset

tf1 = tf.compat.v1
PIECE = 4096  # rows that are enqueued at once


def _labels(values: Any, task: Task) -> np.ndarray:
    table = TABLES[task.table]
    return np.searchsorted(np.array(table.labels, np.int64), values)


def arrays(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """The CSV file in memory: float32 features `[rows, columns - 1]` and labels int64 `[rows]`."""
    values = pd.read_csv(task.source, header=None, dtype=np.float32).to_numpy()
    return values[:, :-1], _labels(values[:, -1], task)


def feed_dict(task: Task) -> Iterator[np.ndarray]:
    """`next_batch` of arrays in memory, fed to the step that uses it."""
    features, labels = arrays(task)
    rng = np.random.default_rng()
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, features.shape[1]])
        y = tf1.placeholder(tf.int64, [None])
        step = [tf.identity(y), tf.identity(x).op]
        for _ in epochs_of(task):
            order = rng.permutation(len(labels))
            for start in range(0, len(order), task.batch_size):
                rows = order[start : start + task.batch_size]
                yield session.run(step, {x: features[rows], y: labels[rows]})[0]


def _run_custom(
    task: Task, epoch: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]], capacity: int
) -> Iterator[np.ndarray]:
    """A background thread enqueues each epoch's pieces, features and labels, into a RandomShuffleQueue."""
    columns = len(TABLES[task.table].columns) - 1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, columns])
        y = tf1.placeholder(tf.int64, [None])
        queue = tf.queue.RandomShuffleQueue(capacity, capacity // 2, [tf.float32, tf.int64], [[columns], []])
        enqueue, close = queue.enqueue_many([x, y]), queue.close()
        features, labels = queue.dequeue_up_to(task.batch_size)

        def feed() -> None:
            for _ in epochs_of(task):
                for values, of in epoch():
                    session.run(enqueue, {x: values, y: of})
            session.run(close)

        threading.Thread(target=feed, daemon=True).start()
        try:
            while True:
                yield session.run([labels, features.op])[0]
        except tf.errors.OutOfRangeError:
            return


def custom_runner(task: Task) -> Iterator[np.ndarray]:
    """A background thread reads the file in pieces, in every epoch, and enqueues them into a RandomShuffleQueue."""

    def epoch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for piece in pd.read_csv(task.source, header=None, dtype=np.float32, chunksize=PIECE):
            values = piece.to_numpy()
            yield values[:, :-1], _labels(values[:, -1], task)

    return _run_custom(task, epoch, task.shuffle_buffer)


def custom_runner_held(task: Task) -> Iterator[np.ndarray]:
    """The same with arrays in memory, in a new order for each epoch, so that a small queue does."""
    features, labels = arrays(task)
    rng = np.random.default_rng()

    def epoch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = rng.permutation(len(labels))
        for start in range(0, len(order), PIECE):
            rows = order[start : start + PIECE]
            yield features[rows], labels[rows]

    return _run_custom(task, epoch, PIECE)


def queue_runner(task: Task) -> Iterator[np.ndarray]:
    """`string_input_producer`, `TFRecordReader`, `parse_single_example`, `shuffle_batch` with several threads."""
    dataset = open_dataset(task.source)
    spec = tft.TFTransformOutput(dataset.run_dir).transformed_feature_spec()
    with tf.Graph().as_default():
        shards = tf1.train.string_input_producer(list(dataset.shards("train")), num_epochs=task.epochs or None)
        _, serialized = tf1.TFRecordReader().read(shards)
        example = tf.io.parse_single_example(serialized, spec)
        batch = tf1.train.shuffle_batch(
            example,
            task.batch_size,
            capacity=task.shuffle_buffer + 3 * task.batch_size,
            min_after_dequeue=task.shuffle_buffer // 2,
            num_threads=4,
            allow_smaller_final_batch=True,
        )
        yield from run_queues([batch[TABLES[task.table].label], *(values.op for values in batch.values())])


def queue_join(task: Task) -> Iterator[np.ndarray]:
    """The same with `shuffle_batch_join`: several readers take shards from one queue, a thread each."""
    dataset = open_dataset(task.source)
    spec = tft.TFTransformOutput(dataset.run_dir).transformed_feature_spec()
    with tf.Graph().as_default():
        shards = tf1.train.string_input_producer(list(dataset.shards("train")), num_epochs=task.epochs or None)
        readers = [tf1.TFRecordReader().read(shards)[1] for _ in range(4)]
        batch = tf1.train.shuffle_batch_join(
            [tf.io.parse_single_example(serialized, spec) for serialized in readers],
            task.batch_size,
            capacity=task.shuffle_buffer + 3 * task.batch_size,
            min_after_dequeue=task.shuffle_buffer // 2,
            allow_smaller_final_batch=True,
        )
        yield from run_queues([batch[TABLES[task.table].label], *(values.op for values in batch.values())])
