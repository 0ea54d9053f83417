"""64-bit hashes of bytes and of row numbers, by NumPy. They sample and compare, and are never stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_LONGEST = 1 << 16  # later bytes of a value begin again with the first multiplier


def mix(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014): uint64 to uint64."""
    z = (z ^ (z >> np.uint64(30))) * _FACTOR
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def place_hash(file: int | np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A uint64 per record, from its input's key and its int64 offset."""
    with np.errstate(over="ignore"):
        return mix(offsets.astype(np.uint64) * GOLDEN + np.asarray(file + 1, np.uint64) * _FACTOR)


def row_hashes(start: int, count: int) -> np.ndarray:
    """uint64 `[count]`: of rows start, start + 1, ... of all files."""
    return mix(np.arange(start + 1, start + count + 1, dtype=np.uint64) * GOLDEN)


_FACTORS = row_hashes(1 << 40, _LONGEST) | np.uint64(1)


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
