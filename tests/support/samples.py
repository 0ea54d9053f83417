"""Samples to compare, from columns in memory: collected as a job collects statistics, and read back from its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.comparison import Sample, samples_of
from schemas.profile.columns import ProfiledColumn, Role
from schemas.profile.statistics import Statistics


def column_of(values: np.ndarray | Sequence[bytes]) -> pa.ListArray:
    """Numbers, `[rows]` or `[rows, width]`, or strings, as a column of a batch."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fi":
        flat = pa.array(values.reshape(-1), from_pandas=False)
    else:
        flat = pa.array(values, pa.binary())
    width = len(flat) // max(1, len(values))
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32) * width), flat)


def sketches_of(columns: Mapping[str, np.ndarray], *, roles: Mapping[str, Role] | None = None) -> bytes:
    """The bytes of `statistics.arrow`. Numbers: NaN is missing; strings (bytes): b"" is."""
    described, arrays = [], []
    for name, values in columns.items():
        numbers = values.dtype.kind == "f"
        role = (roles or {}).get(name, "feature")
        if numbers:
            described.append(ProfiledColumn(name, "numbers", "numeric", role, (name,)))
        else:
            described.append(ProfiledColumn(name, "strings", "category", role, (name,), missing=("",)))
        arrays.append(column_of(values.astype(np.float32) if numbers else values))
    statistics = Statistics(described)
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    statistics.add(batch, np.zeros(batch.num_rows, np.int8))
    return statistics.to_bytes()


def sample_of(columns: Mapping[str, np.ndarray], *, roles: Mapping[str, Role] | None = None) -> Sample:
    """The same, read back."""
    return samples_of(Statistics.from_bytes(sketches_of(columns, roles=roles)))["train"]
