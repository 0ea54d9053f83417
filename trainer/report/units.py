"""Stored numbers in the units of the raw file, from the pairs of raw and stored records that the job keeps.

A transform is not run backwards: it is measured. `z_score`, `min_max` and `scale` are straight lines, which two pairs
fix; `log` is one of log(1 + x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from schemas.dataset import Dataset
from schemas.spec.features import Numeric
from trainer.export.receivers import raw_example_spec, record_columns
from trainer.export.skew_check import read_parity_records
from trainer.export.warmup import graph_values

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
