"""What an export's output `error` says of rows that have no prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from schemas.rejects import Reject
from schemas.rows import RowFile
from schemas.spec.not_finite import NOT_FINITE, hints_of
from schemas.spec.table import Schema


def refused_rows(file: RowFile, schema: Schema, offsets: np.ndarray, errors: Sequence[bytes]) -> Iterator[Reject]:
    """The rejects of rows that the reader accepts and the model refuses, without their raw bytes.

    Args:
      file: the rows' file.
      schema: the export's.
      offsets: int64 `[rows]`, where the rows begin in the file.
      errors: `[rows]`, the model's `error` for each: `<input>: <reason>`.
    """
    columns = {name: labels[0] for name, labels in file.labels if len(labels) == 1}
    hints = hints_of(schema)
    for offset, error in zip(offsets.tolist(), errors, strict=True):
        name, _, reason = error.decode().partition(": ")
        detail = "the model rejects this value"
        if reason == NOT_FINITE:
            detail = f"not finite after the transform{hints.get(name, '')}"
        yield Reject(file.path, offset, "transform", reason, columns.get(name, name), detail, b"")
