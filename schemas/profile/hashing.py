"""64-bit hashes of bytes and of places, by NumPy. They sample and compare, and are never stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from schemas.spec.split_hash import GOLDEN, mix, splitmix64

_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_LONGEST = 1 << 16  # later bytes of a value begin again with the first multiplier


def place_hash(file: int | np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A uint64 per record, from its input's key and its int64 offset."""
    with np.errstate(over="ignore"):
        return mix(offsets.astype(np.uint64) * GOLDEN + np.asarray(file + 1, np.uint64) * _FACTOR)


_FACTORS = splitmix64(1 << 40, _LONGEST) | np.uint64(1)


def value_hashes(values: pa.BinaryArray) -> np.ndarray:
    """uint64 `[n]`: multilinear in a value's bytes, and its length."""
    count = len(values)
    if not count:
        return np.empty(0, np.uint64)
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * values.offset).astype(np.int64)
    lengths = np.diff(offsets)
    sums = np.zeros(count, np.uint64)
    filled = np.flatnonzero(lengths)
    if len(filled) and data is not None:
        codes = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
        places = np.arange(len(codes)) - np.repeat(offsets[:-1] - offsets[0], lengths)
        codes += np.uint64(1)
        codes *= _FACTORS[places % _LONGEST]
        sums[filled] = np.add.reduceat(codes, offsets[:-1][filled] - offsets[0])
    return mix(sums + lengths.astype(np.uint64) * GOLDEN)
