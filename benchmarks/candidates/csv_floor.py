"""The floor: pyarrow parses, tfx-bsl's C++ encodes, TensorFlow's C++ writes: the work that every candidate must do.

Nothing is checked, measured or shuffled.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import tensorflow as tf
from tfx_bsl.coders.example_coder import RecordBatchToExamples

from benchmarks.measure import BenchmarkTask
from benchmarks.tables import TABLES, Table


def _lists(values: pa.Array, length: int = 1) -> pa.Array:
    """Values as lists of one length, as the encoder takes them."""
    offsets = np.arange(0, len(values) + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def columns(batch: pa.RecordBatch, table: Table) -> dict[str, pa.Array]:
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


def write(task: BenchmarkTask) -> None:
    """Reads the CSV file block by block and writes it."""
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
            for example in RecordBatchToExamples(pa.RecordBatch.from_pydict(columns(batch, table))):
                writer.write(example)
