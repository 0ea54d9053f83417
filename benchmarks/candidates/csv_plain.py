"""CSV to records without statistics: a Python loop over the lines, and the least that all candidates must do.

https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import csv
import os

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import tensorflow as tf
from tfx_bsl.coders.example_coder import RecordBatchToExamples

from benchmarks.candidates.tf1 import example, of_bytes, of_floats, of_int
from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES, Table


def python_loop(task: BenchmarkTask) -> None:
    """Reads the CSV file row by row and writes a `tf.train.Example` for each, with numbers and words as they are."""
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


def _lists(values: pa.Array, length: int = 1) -> pa.Array:
    """Values as lists of one length, as the encoder takes them."""
    offsets = np.arange(0, len(values) + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _columns(batch: pa.RecordBatch, table: Table) -> dict[str, pa.Array]:
    """The features of a batch."""
    arrays = batch.columns
    out = {}
    for name, vector in table.numeric.items():
        stack = np.stack([arrays[i].to_numpy() for i in vector.columns], axis=1)
        out[name] = _lists(pa.array(stack.reshape(-1)), len(vector.columns))
    for name, (first, last) in table.one_hot.items():
        hot = np.stack([arrays[i].to_numpy() for i in range(first, last + 1)])
        out[name] = _lists(pa.array(hot.argmax(axis=0)))
    for name, column in table.text.items():
        out[name] = _lists(arrays[column].cast(pa.binary()))
    words = pa.compute.utf8_trim_whitespace(arrays[table.label_column])
    classes = pa.compute.index_in(words, pa.array(table.labels))
    out[table.label] = _lists(classes.cast(pa.int64()))
    return out


def floor(task: BenchmarkTask) -> None:
    """The floor: pyarrow parses, tfx-bsl's C++ encodes, TensorFlow's C++ writes: the work that every candidate must do.

    Nothing is checked, measured or shuffled.
    """
    table = TABLES[task.table]
    types = {name: pa.string() for name in table.columns}
    for vector in table.numeric.values():
        types |= {table.columns[i]: pa.float32() for i in vector.columns}
    for first, last in table.one_hot.values():
        types |= {table.columns[i]: pa.int8() for i in range(first, last + 1)}
    reader = pa.csv.open_csv(
        task.source,
        pa.csv.ReadOptions(column_names=table.columns, skip_rows=int(table.header), block_size=4 << 20),
        convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    with tf.io.TFRecordWriter(os.path.join(task.output, "train.tfrecord")) as writer:
        for batch in reader:
            for example in RecordBatchToExamples(pa.RecordBatch.from_pydict(_columns(batch, table))):
                writer.write(example)
