"""A Python loop over the lines: one `tf.train.Example` per row, no statistics.

https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import csv
import os

import tensorflow as tf

from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES


def of_floats(values: list[float]) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def of_int(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def of_bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def example(feature: dict[str, tf.train.Feature]) -> bytes:
    """A serialized `tf.train.Example`."""
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def write(task: BenchmarkTask) -> None:
    """Reads the CSV file row by row and writes its numbers and words as they are."""
    table = TABLES[task.table]
    path = os.path.join(task.output, "train.tfrecord")
    with open(task.source, newline="", encoding="utf-8") as file, tf.io.TFRecordWriter(path) as writer:
        rows = csv.reader(file, skipinitialspace=table.spaced)
        if table.header:
            next(rows)
        for row in rows:
            feature = {}
            for name, vector in table.numeric.items():
                feature[name] = of_floats([float(value) for value in row[vector.first : vector.last + 1]])
            for name, (first, last) in table.one_hot.items():
                feature[name] = of_int(row[first : last + 1].index("1"))
            for name, column in table.text.items():
                feature[name] = of_bytes(row[column].encode())
            feature[table.label] = of_int(table.labels.index(row[table.label_column]))
            writer.write(example(feature))
