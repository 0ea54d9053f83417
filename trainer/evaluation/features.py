"""What the stored values of features are called: a word of a vocabulary, a column, a range, or a raw number.

A transform is not run backwards: raw numbers are interpolated between those of the records that the job keeps both as
they were read and as they were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.display import readable
from schemas.spec.features import Bool, Bucketize, Category, Feature, Numeric, OneHot
from schemas.spec.forms import Ids, Input
from trainer.evaluation.slices import Slicing, by_id, by_number, hashed, parts_of
from trainer.export.receivers import raw_example_spec, record_columns
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values
from trainer.spec.task_spec import read_table_task_spec

MOST_VALUES = 10_000  # of a feature that is sliced

RawNumbers = Mapping[tuple[str, int | None], tuple[np.ndarray, np.ndarray]]


class ModelFeatures:
    """The features of a table that a model reads.

    Attributes:
      inputs: the stored features, by name.
      parts: the single values that they hold.
    """

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset
        self._declared: dict[str, Feature] = {
            name: f for f in dataset.schema.inputs for name in (f.made if isinstance(f, Numeric) else (f.name,))
        }
        self.inputs = {entry.name: entry for entry in read_table_task_spec(dataset).inputs}
        self.parts = [part for e in self.inputs.values() for part in parts_of(e, self._declared.get(e.name))]

    def slicings(self, sample: Mapping[str, np.ndarray]) -> Iterator[Slicing]:
        """Yields how each part divides rows.

        Args:
          sample: values of some rows, `[rows, ...]` by feature, from which the ranges of numbers are taken.
        """
        raw_numbers = _raw_numbers(self._dataset)
        for part in self.parts:
            entry, feature = self.inputs[part.feature], self._declared.get(part.feature)
            if part.feature not in sample or hashed(entry, feature):
                continue
            if not isinstance(entry, Ids):
                text = _number_text(feature, raw_numbers.get((part.feature, part.column)))
                yield by_number(part, part.values(sample), text)
            elif entry.count <= MOST_VALUES:
                yield by_id(part, _id_names(self._dataset, entry, feature))

    def without_slices(self, slicings: list[Slicing]) -> list[str]:
        """Returns the names of the features that none of these divisions is by."""
        sliced, divided = {slicing.name for slicing in slicings}, {part.feature for part in self.parts}
        return [part.name for part in self.parts if part.name not in sliced] + [
            n for n in self.inputs if n not in divided
        ]


def _id_names(dataset: OpenDataset, entry: Input, feature: Feature | None) -> list[str]:
    """What each id stands for."""
    count = entry.count if isinstance(entry, Ids) else 0
    names: list[str] = []
    if isinstance(feature, OneHot):
        names = [f"column {ref}" for ref in feature.refs]
    elif isinstance(feature, Category):
        words: Any = feature.listed
        if words is None:
            words = tft.TFTransformOutput(dataset.graphs_dir).vocabulary_by_name(entry.name)
        names = [word.decode(errors="replace") if isinstance(word, bytes) else word for word in words]
        names += ["(other values)"] * (count - len(names))
    elif isinstance(feature, Numeric) and isinstance(feature.transform, Bucketize):
        names = [_range_text(feature.transform, value) for value in range(count)]
    return (names + [f"bucket {value}" for value in range(len(names), count)])[:count]


def _range_text(transform: Bucketize, value: int) -> str:
    if isinstance(transform.bucketize, int):
        return f"quantile {value + 1} of {transform.bucketize}"
    ends = [f"{x:g}" for x in transform.bucketize]
    if value == 0:
        return f"below {ends[0]}"
    return f"{ends[value - 1]} to {ends[value]}" if value < len(ends) else f"from {ends[-1]}"


def _number_text(feature: Feature | None, pairs: tuple[np.ndarray, np.ndarray] | None) -> Callable[[float], str]:
    """How a stored number is written; `pairs` are stored numbers, rising, and the raw ones that they were."""
    if isinstance(feature, Bool):
        return lambda value: "true" if value > 0.5 else "false"
    if pairs is None or not len(pairs[0]):
        return lambda value: readable(value, 5)
    return lambda value: readable(float(np.interp(value, *pairs)), 5)


def _raw_numbers(dataset: OpenDataset) -> RawNumbers:
    """Stored numbers, rising, beside the raw ones that they were, by feature and column (None: it has one)."""
    spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    names = {f.name for f in dataset.schema.inputs if isinstance(f, Numeric)}
    stored_spec = {name: spec[name] for name in names & spec.keys() if spec[name].dtype == tf.float32}
    if not stored_spec:
        return {}
    records = read_parity_records(dataset)
    columns = tuple(c for c in record_columns(dataset) if c.name in stored_spec)
    raw = graph_values(lambda s: tf.io.parse_example(s, raw_example_spec(columns)), records.raw)
    stored = graph_values(lambda s: tf.io.parse_example(s, stored_spec), records.transformed)
    pairs = {}
    for name in raw.keys() & stored.keys():
        before, after = (np.asarray(values[name], np.float64) for values in (raw, stored))
        if before.shape != after.shape:
            continue
        width = before.shape[1] if before.ndim == 2 else 1
        for column, (x, y) in enumerate(zip(after.reshape(-1, width).T, before.reshape(-1, width).T, strict=True)):
            usable = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
            order = usable[np.argsort(x[usable], kind="stable")]
            pairs[name, column if width > 1 else None] = x[order], y[order]
    return pairs
