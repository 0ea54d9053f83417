"""Rows for training in TensorFlow 1's ways, and through `tf.data` in the ways of its guides.

https://www.tensorflow.org/guide/data_performance, https://www.tensorflow.org/guide/data and
https://www.tensorflow.org/tutorials/load_data/csv
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_transform as tft

from benchmarks.candidates.tf1 import feed, feed_queue, run_queues, shuffled, tf1
from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES
from schemas.dataset import open_dataset

PIECE = 4096  # rows that are enqueued at once


def _labels(values: Any, task: BenchmarkTask) -> np.ndarray:
    return np.searchsorted(np.array(TABLES[task.table].labels, np.int64), values)


def _shape(task: BenchmarkTask) -> list[int]:
    return [len(TABLES[task.table].columns) - 1]


def _shuffled_arrays(task: BenchmarkTask, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The CSV file in memory, in a new order for each epoch, in pieces."""
    values = pd.read_csv(task.source, header=None, dtype=np.float32).to_numpy()
    features, labels = values[:, :-1], _labels(values[:, -1], task)
    rng = np.random.default_rng()
    for _ in task.passes:
        order = rng.permutation(len(labels))
        for start in range(0, len(order), size):
            places = order[start : start + size]
            yield features[places], labels[places]


def feed_dict(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """`next_batch` of arrays in memory, fed to the step that uses it."""
    return feed(_shuffled_arrays(task, task.batch_size), tf.float32, _shape(task))


def custom_runner(task: BenchmarkTask, *, in_memory: bool = False) -> Iterator[np.ndarray]:
    """A background thread enqueues pieces of the file into a RandomShuffleQueue, from which steps take batches.

    It reads the file in every epoch; `in_memory`: arrays in a new order for each epoch, so that a small queue does.
    """

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in task.passes:
            for piece in pd.read_csv(task.source, header=None, dtype=np.float32, chunksize=PIECE):
                values = piece.to_numpy()
                yield values[:, :-1], _labels(values[:, -1], task)

    capacity = PIECE if in_memory else task.shuffle_buffer
    arrays = _shuffled_arrays(task, PIECE) if in_memory else pieces()
    return feed_queue(task, lambda: arrays, tf.float32, _shape(task), capacity=capacity, least=capacity // 2)


def queue_runners(task: BenchmarkTask, *, readers: int = 1) -> Iterator[np.ndarray]:
    """`string_input_producer`, `TFRecordReader`, `parse_single_example`, `shuffle_batch` with several threads.

    Several readers, which take shards from one queue with a thread each, are joined by `shuffle_batch_join`.
    """
    dataset = open_dataset(task.source)
    spec = tft.TFTransformOutput(dataset.run_dir).transformed_feature_spec()
    with tf.Graph().as_default():
        shards = tf1.train.string_input_producer(list(dataset.shards("train")), num_epochs=task.epochs or None)
        serialized = [tf1.TFRecordReader().read(shards)[1] for _ in range(readers)]
        examples = [tf.io.parse_single_example(record, spec) for record in serialized]
        batch = shuffled(task, examples, least=task.shuffle_buffer // 2, more=task.shuffle_buffer)
        yield from run_queues([batch[TABLES[task.table].label], *(values.op for values in batch.values())])


def _shuffled(rows: tf.data.Dataset, task: BenchmarkTask) -> tf.data.Dataset:
    return rows.shuffle(task.shuffle_buffer).repeat(task.epochs or None)


def _batches(rows: tf.data.Dataset, task: BenchmarkTask) -> tf.data.Dataset:
    return rows.batch(task.batch_size).prefetch(tf.data.AUTOTUNE)


def single_example(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """`map(parse_single_example)` after a parallel interleave and a shuffle, and then batched."""
    dataset = open_dataset(task.source)
    spec = tft.TFTransformOutput(dataset.run_dir).transformed_feature_spec()
    shards = dataset.shards("train")
    records = tf.data.Dataset.from_tensor_slices(list(shards)).shuffle(len(shards))
    records = records.interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    rows = _shuffled(records, task).map(
        lambda record: tf.io.parse_single_example(record, spec), num_parallel_calls=tf.data.AUTOTUNE
    )
    for batch in _batches(rows, task):
        yield batch[TABLES[task.table].label].numpy()


def text_lines(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """`TextLineDataset`, shuffled and batched, and `decode_csv` on complete batches."""
    columns = len(TABLES[task.table].columns)

    def parse(lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        *features, label = tf.io.decode_csv(lines, [[0.0]] * (columns - 1) + [[0]])
        return tf.stack(features, axis=1), label - 1

    lines = _shuffled(tf.data.TextLineDataset(task.source), task).batch(task.batch_size)
    for _, labels in lines.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE):
        yield labels.numpy()


def from_generator(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """`from_generator` over the rows of a file that pandas reads in pieces."""

    def examples() -> Iterator[tuple[np.ndarray, int]]:
        for piece in pd.read_csv(task.source, header=None, dtype=np.float32, chunksize=10_000):
            values = piece.to_numpy()
            yield from zip(values[:, :-1], values[:, -1].astype(np.int64) - 1, strict=True)

    shape = [len(TABLES[task.table].columns) - 1]
    signature = (tf.TensorSpec(shape, tf.float32), tf.TensorSpec([], tf.int64))
    rows = tf.data.Dataset.from_generator(examples, output_signature=signature)
    for _, labels in _batches(_shuffled(rows, task), task):
        yield labels.numpy()
