"""Rows through `tf.data`, the ways of its guides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_transform as tft

from benchmarks.tables import TABLES
from benchmarks.task import Task
from schemas.dataset import open_dataset


def _files(task: Task) -> tf.data.Dataset:
    shards = open_dataset(task.source).shards("train")
    return tf.data.Dataset.from_tensor_slices(list(shards)).shuffle(len(shards))


def _shuffled(rows: tf.data.Dataset, task: Task) -> tf.data.Dataset:
    return rows.shuffle(task.shuffle_buffer).repeat(task.epochs or None)


def _batches(rows: tf.data.Dataset, task: Task) -> tf.data.Dataset:
    return rows.batch(task.batch_size).prefetch(tf.data.AUTOTUNE)


PARALLEL: dict[str, Any] = {"cycle_length": 4, "num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}


def single_example(task: Task) -> Iterator[np.ndarray]:
    """`map(parse_single_example)` after a parallel interleave and a shuffle, and then batched.

    https://www.tensorflow.org/guide/data_performance
    """
    spec = tft.TFTransformOutput(open_dataset(task.source).run_dir).transformed_feature_spec()
    records = _shuffled(_files(task).interleave(tf.data.TFRecordDataset, **PARALLEL), task)
    rows = records.map(
        lambda serialized: tf.io.parse_single_example(serialized, spec), num_parallel_calls=tf.data.AUTOTUNE
    )
    for batch in _batches(rows, task):
        yield batch[TABLES[task.table].label].numpy()


def raw_records(task: Task) -> Iterator[np.ndarray]:
    """The records alone, through tf.data's own shuffle buffer.

    https://www.tensorflow.org/guide/data#consuming_tfrecord_data
    """
    records = _files(task).interleave(tf.data.TFRecordDataset, block_length=16, **PARALLEL)
    for batch in _batches(_shuffled(records, task), task):
        yield np.empty(batch.shape[0], object)  # how many


def text_lines(task: Task) -> Iterator[np.ndarray]:
    """`TextLineDataset`, shuffled and batched, and `decode_csv` on complete batches.

    https://www.tensorflow.org/tutorials/load_data/csv
    """
    columns = len(TABLES[task.table].columns)
    rows = _shuffled(tf.data.TextLineDataset(task.source), task)

    def parse(lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        *features, label = tf.io.decode_csv(lines, [[0.0]] * (columns - 1) + [[0]])
        return tf.stack(features, axis=1), label - 1

    batches = rows.batch(task.batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    for _, labels in batches.prefetch(tf.data.AUTOTUNE):
        yield labels.numpy()


def from_generator(task: Task) -> Iterator[np.ndarray]:
    """`from_generator` over the rows of a file that pandas reads in pieces.

    https://www.tensorflow.org/guide/data#consuming_python_generators
    """
    columns = len(TABLES[task.table].columns) - 1

    def examples() -> Iterator[tuple[np.ndarray, int]]:
        for piece in pd.read_csv(task.source, header=None, dtype=np.float32, chunksize=10_000):
            values = piece.to_numpy()
            yield from zip(values[:, :-1], values[:, -1].astype(np.int64) - 1, strict=True)

    signature = (tf.TensorSpec([columns], tf.float32), tf.TensorSpec([], tf.int64))
    rows = tf.data.Dataset.from_generator(examples, output_signature=signature)
    for _, labels in _batches(_shuffled(rows, task), task):
        yield labels.numpy()


def _tfds(task: Task, **config: bool) -> Iterator[np.ndarray]:
    import tensorflow_datasets as tfds

    builder = tfds.builder("csv_file", data_dir=task.source)
    rows = builder.as_dataset(split="train", shuffle_files=True, read_config=tfds.ReadConfig(**config))
    for batch in _batches(_shuffled(rows, task), task):
        yield batch[TABLES[task.table].label].numpy()


def tfds(task: Task) -> Iterator[np.ndarray]:
    """What `benchmarks.rivals.csv_tfds` has written, through TFDS's own reader, from the file in every epoch.

    https://www.tensorflow.org/datasets/performances
    """
    return _tfds(task, try_autocache=False)


def tfds_cached(task: Task) -> Iterator[np.ndarray]:
    """The same as TFDS does it by itself below 250 MB: parsed rows are kept in memory."""
    return _tfds(task)
