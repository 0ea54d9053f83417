"""What stored values of features are called: a word of a vocabulary, a column, a range, a number in its raw unit.

A transform is not run backwards: it is measured on the pairs of raw and stored records that the job keeps. `z_score`,
`min_max` and `scale` are straight lines, which two pairs fix; `log` is one of log(1 + x).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow_transform as tft

from schemas.dataset import Dataset
from schemas.spec.features import Bool, Bucketize, Category, Feature, Numeric, OneHot, Text
from schemas.spec.forms import Ids
from trainer.evaluation.slices import MOST_VALUES, Slicing, hashed, of_ids, of_numbers, parts_of, taken
from trainer.export.receivers import raw_example_spec, record_columns
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values
from trainer.spec.task_spec import read_table_task_spec

_CLOSE = 1e-3  # of the spread of the raw values: how well a line must fit


Way = Callable[[float], float]


class Units:
    """The way back from stored numbers to raw ones, for each value of a numeric feature where it is known."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._ways: dict[tuple[str, int | None], Way] | None = None

    def raw(self, name: str, column: int | None, value: float) -> float:
        """A stored number as in the raw file; the stored one where no way back is known. `column`: of a vector."""
        if self._ways is None:
            self._ways = self._measured()
        return self._ways.get((name, column), lambda stored: stored)(value)

    def _measured(self) -> dict[tuple[str, int | None], Way]:
        import tensorflow as tf
        import tensorflow_transform as tft

        features = {f.name: f for f in self._dataset.schema.inputs if isinstance(f, Numeric)}
        spec = tft.TFTransformOutput(self._dataset.graphs_dir).transformed_feature_spec()
        stored_spec = {n: spec[n] for n in features if n in spec and spec[n].dtype == tf.float32}
        if not stored_spec:
            return {}
        records = read_parity_records(self._dataset)
        columns = tuple(c for c in record_columns(self._dataset) if c.name in stored_spec)
        raw = graph_values(lambda s: tf.io.parse_example(s, raw_example_spec(columns)), records.raw)
        stored = graph_values(lambda s: tf.io.parse_example(s, stored_spec), records.transformed)
        ways: dict[tuple[str, int | None], Way] = {}
        for name in raw.keys() & stored.keys():
            before, after = np.asarray(raw[name]), np.asarray(stored[name])
            log = features[name].transform == "log"
            vector = features[name].width > 1 and before.ndim == 2 and before.shape == after.shape
            for column in range(before.shape[1]) if vector else (None,):
                pair = (before, after) if column is None else (before[:, column], after[:, column])
                way = way_back(*pair, log=log)
                if way is not None:
                    ways[name, column] = way
        return ways


def way_back(raw: Any, stored: Any, *, log: bool = False) -> Way | None:
    """The function from stored to raw numbers; None where no line fits the pairs.

    Args:
      raw: raw numbers, `[records]`; NaN is missing.
      stored: what each became, `[records]`.
      log: whether the line is one of log(1 + raw).
    """
    raw, stored = np.asarray(raw, np.float64).reshape(-1), np.asarray(stored, np.float64).reshape(-1)
    known = np.isfinite(raw) & np.isfinite(stored)
    raw, stored = raw[known], stored[known]
    if len(raw) != len(stored) or len(raw) < 2 or np.ptp(stored) == 0:
        return None
    straight = np.log1p(raw) if log else raw
    low, high = np.argmin(stored), np.argmax(stored)
    slope = (straight[high] - straight[low]) / (stored[high] - stored[low])
    base = straight[low] - slope * stored[low]
    if not np.allclose(base + slope * stored, straight, rtol=0, atol=_CLOSE * np.ptp(straight)):
        return None
    return lambda value: float(np.expm1(base + slope * value) if log else base + slope * value)


class FeatureText:
    """The features of a CSV dataset that a model reads, in words.

    Attributes:
      inputs: the stored features by name, as `schemas.spec.forms` has them.
      parts: the values that can be told apart.
    """

    def __init__(self, dataset: Dataset) -> None:
        declared = {
            name: f for f in dataset.schema.inputs for name in (f.made if isinstance(f, Numeric) else (f.name,))
        }
        self._declared: dict[str, Feature] = declared
        self._output = tft.TFTransformOutput(dataset.graphs_dir)
        self._units = Units(dataset)
        self._words: dict[str, list[str]] = {}
        self.inputs = {entry.name: entry for entry in read_table_task_spec(dataset).inputs}
        self.parts = [part for entry in self.inputs.values() for part in parts_of(entry, declared.get(entry.name))]

    def readable(self) -> list[str]:
        """The features whose stored values can be read."""
        return [name for name, entry in self.inputs.items() if not hashed(entry, self._declared.get(name))]

    def text(self, name: str, value: Any) -> str:
        """A stored value of a feature, `[]` or `[n]`."""
        items = np.asarray(value).reshape(-1)
        if isinstance(self.inputs.get(name), Ids):
            return ", ".join(filter(None, (self._id_text(name, int(item)) for item in items)))
        columns = [None] if items.size == 1 else range(items.size)
        return ", ".join(self._number_text(name, c)(float(item)) for c, item in zip(columns, items, strict=True))

    def slicings(self, sample: Mapping[str, np.ndarray]) -> Iterator[Slicing]:
        """How each part divides rows.

        Args:
          sample: values of some rows, `[rows, ...]` by feature, from which the ranges of numbers are taken.
        """
        readable = set(self.readable())
        for part in self.parts:
            entry = self.inputs[part.feature]
            if part.feature not in sample or part.feature not in readable:
                continue
            if not isinstance(entry, Ids):
                values = taken(sample, part)
                yield of_numbers(part, values, self._number_text(part.feature, part.column))
            elif entry.count <= MOST_VALUES:
                yield of_ids(part, entry.count, lambda i, name=part.feature: self._id_text(name, i))  # type: ignore[misc]

    def _id_text(self, name: str, value: int) -> str:
        """What an id stands for."""
        feature = self._declared.get(name)
        if isinstance(feature, OneHot):
            return f"column {feature.refs[value]}" if value < feature.width else str(value)
        if isinstance(feature, Category | Text) and getattr(feature, "hash_buckets", None) is None:
            words = self._vocabulary(name, feature)
            place = value - 1 if isinstance(feature, Text) else value  # 0 is padding
            return words[place] if 0 <= place < len(words) else "(other values)" if place >= 0 else ""
        if isinstance(feature, Numeric) and isinstance(feature.transform, Bucketize):
            return _range_text(feature.transform, value)
        return f"bucket {value}"

    def _vocabulary(self, name: str, feature: Category | Text) -> list[str]:
        if name not in self._words:
            listed = feature.listed if isinstance(feature, Category) else None
            found = self._output.vocabulary_by_name(name) if listed is None else listed
            self._words[name] = [w.decode(errors="replace") if isinstance(w, bytes) else w for w in found]
        return self._words[name]

    def _number_text(self, name: str, column: int | None) -> Callable[[float], str]:
        """How a stored number is written: as in the raw file, as far as its scale is known."""
        if isinstance(self._declared.get(name), Bool):
            return lambda value: "true" if value > 0.5 else "false"
        return lambda value: f"{self._units.raw(name, column, value):.5g}"


def _range_text(transform: Bucketize, value: int) -> str:
    if isinstance(transform.bucketize, int):
        return f"quantile {value + 1} of {transform.bucketize}"
    ends = [f"{x:g}" for x in transform.bucketize]
    if value == 0:
        return f"below {ends[0]}"
    return f"{ends[value - 1]} to {ends[value]}" if value < len(ends) else f"from {ends[-1]}"
