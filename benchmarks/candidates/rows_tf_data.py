"""Rows through `tf.data`, in the ways of its guides.

https://www.tensorflow.org/guide/data_performance, https://www.tensorflow.org/guide/data and
https://www.tensorflow.org/tutorials/load_data/csv
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_transform as tft

from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES
from schemas.dataset import open_dataset


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
