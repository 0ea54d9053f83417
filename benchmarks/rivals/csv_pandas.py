"""pandas reads and scales the entire file, column by column; a loop writes a `tf.train.Example` per row.

https://www.tensorflow.org/tutorials/load_data/tfrecord for the records,
https://pandas.pydata.org/docs/user_guide/io.html for the file.
"""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import tensorflow as tf

from benchmarks.rivals.csv_python_loop import example, of_floats, of_int
from benchmarks.tables import TABLES
from benchmarks.task import Task


def write(task: Task) -> None:
    """Reads the CSV file, scales numbers, numbers the words, and writes row by row."""
    table = TABLES[task.table]
    frame = pd.read_csv(
        task.source, header=0 if table.header else None, names=table.columns, skipinitialspace=table.spaced
    )
    columns = {}
    for name, vector in table.numeric.items():
        values = frame.iloc[:, list(vector.columns)].to_numpy(np.float32)
        match vector.how:
            case "z_score":
                columns[name] = (values - values.mean(axis=0)) / values.std(axis=0)
            case "log":
                columns[name] = np.log1p(values)
            case "scale":
                columns[name] = values / 255
            case bounds:
                columns[name] = np.digitize(values[:, 0], bounds)
    for name, (first, last) in table.one_hot.items():
        columns[name] = frame.iloc[:, first : last + 1].to_numpy().argmax(axis=1)
    for name, column in table.text.items():
        columns[name] = pd.factorize(frame.iloc[:, column])[0]
    labels = frame.iloc[:, table.label_column].astype(str)
    columns[table.label] = labels.map({value: i for i, value in enumerate(table.labels)}).to_numpy()

    make = [of_floats if values.ndim == 2 else of_int for values in columns.values()]
    with tf.io.TFRecordWriter(os.path.join(task.output, "train.tfrecord")) as writer:
        for row in zip(*(values.tolist() for values in columns.values()), strict=True):
            writer.write(example({name: of(value) for name, of, value in zip(columns, make, row, strict=True)}))
