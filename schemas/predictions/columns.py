"""The columns of predictions, the same in every format that they are written in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

SOURCE, OFFSET, KEY, CLASS, PROBABILITIES, VALUE = "source", "offset", "key", "class", "probabilities", "value"
INPUT = "input."  # before the name of an input's column that is passed through


def source_name(path: str) -> str:
    """A file's path as text: bytes of its name that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def predictions(
    *,
    sources: pa.DictionaryArray,
    offsets: np.ndarray,
    keys: pa.StringArray | None,
    passed: Mapping[str, pa.StringArray],
    outputs: Mapping[str, np.ndarray],
    classes: Sequence[str],
) -> pa.RecordBatch:
    """Predictions as columns `[rows]`: source, offset, key, what is passed through; class and probabilities, or value.

    Args:
      sources: the file of each row.
      offsets: int64, where each row begins in it.
      keys: the rows' keys; None: they have none.
      passed: further columns of the input, by name.
      outputs: `class_id` int64 `[rows]` and `probabilities` float32 `[rows, classes]`, or `value` float32 `[rows]`.
      classes: the names of the classes by id; none for a regression.
    """
    columns: dict[str, pa.Array] = {SOURCE: sources, OFFSET: pa.array(offsets, pa.int64())}
    if keys is not None:
        columns[KEY] = keys
    columns |= {f"{INPUT}{name}": values for name, values in passed.items()}
    if classes:
        ids = pa.array(outputs["class_id"].astype(np.int32))
        columns[CLASS] = pa.DictionaryArray.from_arrays(ids, pa.array(classes, pa.string()))
        flat = pa.array(np.ascontiguousarray(outputs["probabilities"], np.float32).reshape(-1))
        columns[PROBABILITIES] = pa.FixedSizeListArray.from_arrays(flat, len(classes))
    else:
        columns[VALUE] = pa.array(np.asarray(outputs["value"], np.float32))
    return pa.RecordBatch.from_pydict(columns)


def probabilities(batch: pa.RecordBatch) -> np.ndarray:
    """float32 `[rows, classes]`."""
    column = batch.column(PROBABILITIES)
    return np.asarray(column.flatten()).reshape(len(column), -1)
