"""TensorFlow Datasets' builder for a CSV file, as its guide writes it: `_generate_examples` yields a dict a row.

https://www.tensorflow.org/datasets/add_dataset. It shuffles the rows by a hash of their keys, as this project does at
random, and has no statistics.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf  # noqa: F401 - TFDS imports it at its first use, which is start-up and not work
import tensorflow_datasets as tfds

from benchmarks.tables import TABLES, Table
from benchmarks.task import Task


class CsvFile(tfds.core.GeneratorBasedBuilder):
    """Rows of one file: a vector of numbers, a number of each one-hot group, words, and the class."""

    VERSION = tfds.core.Version("1.0.0")
    name = "csv_file"

    def __init__(self, *, table: Table, source: str, **kwargs: Any) -> None:
        self.table = table
        self.source = source
        super().__init__(**kwargs)

    def _info(self) -> Any:
        features: dict[str, Any] = {}
        for name, vector in self.table.numeric.items():
            features[name] = tfds.features.Tensor(shape=(len(vector.columns),), dtype=np.float32)
        for name in self.table.one_hot:
            features[name] = tfds.features.Scalar(dtype=np.int64)
        for name in self.table.text:
            features[name] = tfds.features.Text()
        features[self.table.label] = tfds.features.ClassLabel(names=list(self.table.labels))
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        table = self.table
        with open(self.source, newline="", encoding="utf-8") as file:
            rows = csv.reader(file, skipinitialspace=table.spaced)
            if table.header:
                next(rows)
            for i, row in enumerate(rows):
                example: dict[str, Any] = {}
                for name, vector in table.numeric.items():
                    example[name] = np.array(row[vector.first : vector.last + 1], np.float32)
                for name, (first, last) in table.one_hot.items():
                    example[name] = row[first : last + 1].index("1")
                for name, column in table.text.items():
                    example[name] = row[column]
                example[table.label] = row[table.label_column]
                yield i, example


def write(task: Task) -> None:
    """Builds the dataset."""
    CsvFile(table=TABLES[task.table], source=task.source, data_dir=task.output).download_and_prepare()
