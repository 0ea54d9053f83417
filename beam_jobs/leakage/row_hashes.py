"""A 64-bit hash of the raw values of each row of a batch: equal rows have equal ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from beam_jobs.statistics.columns import Column
from schemas.csv import strings
from schemas.csv.numbers import missing_tokens
from schemas.inference.hashing import mix, value_hashes

ABSENT = 0  # the code of a missing string
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NAN = np.uint32(0x7FC00000)
_AT_ONCE = 1 << 16  # values that are hashed at once, so that the work stays in the cache


def codes_of(column: Column, values: pa.Array, rows: int) -> np.ndarray:
    """uint64 `[rows]`: a hash of each string, or the place of the 1 in a one-hot group; ABSENT if it is missing."""
    if column.reads == "one_hot":
        ones: np.ndarray = np.asarray(values).reshape(rows, -1) == 1
        return ones.argmax(1).astype(np.uint64) + np.uint64(1)
    found = strings.distinct(values, missing_tokens(column.missing).tokens)
    hashes = np.where(found.absent, np.uint64(ABSENT), value_hashes(found.trimmed))
    return hashes[found.codes]


def numbers_of(values: pa.Array, rows: int) -> np.ndarray:
    """float32 `[rows, width]`, with one NaN and one zero."""
    matrix = np.asarray(values).astype(np.float32, copy=False).reshape(rows, -1) + np.float32(0)  # -0 + 0 is 0
    missing = np.isnan(matrix)
    if missing.any():
        matrix.view(np.uint32)[missing] = _NAN
    return matrix


def hash_rows(numbers: Mapping[int, np.ndarray], codes: Mapping[int, np.ndarray], rows: int) -> np.ndarray:
    """uint64 `[rows]`: the sum of a hash of each value and its place, finalised.

    Each value is mixed before it is added. A sum of products, as in `schemas.spec.split_hash`, takes less time, but
    floats that are small integers have many zero bits at their end, and so would the sum.

    Args:
      numbers: float32 `[rows, width]`, as `numbers_of` returns them, by the place of their first column.
      codes: uint64 `[rows]`, by place.
      rows: how many there are.
    """
    total = np.zeros(rows, np.uint64)
    for place, matrix in numbers.items():
        width = matrix.shape[1]
        salts = np.arange(place + 1, place + width + 1, dtype=np.uint64) * _GOLDEN
        step = max(1, _AT_ONCE // width)
        for start in range(0, rows, step):
            some = matrix[start : start + step]
            total[start : start + step] += mix(some.view(np.uint32).astype(np.uint64) + salts).sum(1, dtype=np.uint64)
    for place, code in codes.items():
        total += mix(code ^ (np.arange(place + 1, place + 2, dtype=np.uint64) * _GOLDEN))
    return mix(total)
