"""Assigns rows to splits: by a stable 64-bit hash of their parsed values, or by the file that contains them.

The hash depends only on the values. So equal rows are in the same split, on every machine and in any order. The hash
must never change, because a dataset that is written again, or appended to, must keep its rows in their splits. A better
hash would be added as version 2, and this one would stay.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from schemas.errors import UsageError, few
from schemas.spec.table import SPLITS, FileSplit, HashSplit, Schema

VERSION = 1
_SEED = 0x4D696C6C72616365  # "Millrace"
_CANONICAL_NAN = 0x7FC00000
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Splits are uneven if a share is off by more than 0.05, and by more than 5 standard deviations of a random division.
_LEAST_DIFFERENCE, _LEAST_DEVIATIONS = 0.05, 5.0
_ROWS = 4096  # rows of a wide matrix that are hashed at once, so that they fit in the CPU's cache


def hash_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Hashes rows by version 1 of the hash.

    The hash of a row is multilinear: seed + sum of value_i * odd_i, modulo 2^64 (Lemire and Kaser, "Strongly universal
    string hashing is fast", 2014). The sum is mixed by the finaliser of splitmix64 (Steele, Lea and Flood, 2014). The
    odd constants also come from splitmix64.

    Args:
      columns: columns of n rows. A float32 column, `[n]` or `[n, k]`, is hashed by its bits, after all NaNs were made
        equal and -0 became 0. A uint64 column `[n]` is hashed as it is (see `hash_strings`). Each of the k columns
        counts as one value. The order of the values matters.

    Returns:
      uint64 `[n]`.
    """
    rows = len(columns[0])
    total = np.full(rows, _SEED, np.uint64)
    used = 0
    for column in columns:
        width = 1 if column.ndim == 1 else column.shape[1]
        odd = splitmix64(used, width, _SEED) | np.uint64(1)
        used += width
        if column.dtype == np.uint64:
            total += column * odd[0]
        elif column.ndim == 1:
            total += canonical_bits(column) * odd[0]
        else:
            for start in range(0, rows, _ROWS):
                # The product of a matrix and a vector of uint64 wraps around at 2^64, just as the sum should.
                total[start : start + _ROWS] += canonical_bits(column[start : start + _ROWS]) @ odd
    return mix(total)


def hash_strings(values: pa.BinaryArray) -> np.ndarray:
    """Hashes strings: the 8 bytes of each value's BLAKE2b, as a little-endian uint64 `[n]`."""
    if not len(values):
        return np.empty(0, np.uint64)
    # Each distinct value is hashed once.
    encoded = values.dictionary_encode()
    digests = b"".join(hashlib.blake2b(value, digest_size=8).digest() for value in encoded.dictionary.to_pylist())
    return np.frombuffer(digests, "<u8").astype(np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]


def assign_splits(hashes: np.ndarray, split: HashSplit) -> np.ndarray:
    """Assigns rows to splits by their hashes.

    A hash divided by 2^64 is a number in [0, 1), which falls into one of the shares.

    Args:
      hashes: uint64 `[n]`.
      split: the shares of the splits.

    Returns:
      Indices in SPLITS, int8 `[n]`.
    """
    shares = [getattr(split, name) for name in SPLITS]
    # The last split with a share takes all hashes above the limits, so that rounding cannot leave a gap.
    last = max(i for i, share in enumerate(shares) if share > 0)
    # Compare the upper 53 bits as integers: a share, which is a float, has no more bits.
    limits = np.array([round(sum(shares[: i + 1]) * 2**53) for i in range(last)], np.uint64)
    return np.searchsorted(limits, hashes >> np.uint64(11), side="right").astype(np.int8)


def file_split(path: str, split: FileSplit) -> int:
    """Returns the index in SPLITS of the split that a file belongs to.

    It is the one split whose pattern matches the path. Patterns match from the right, as in `PurePath.match`:
    `train/*.csv` matches `/data/train/a.csv`.

    Raises:
      UsageError: no pattern matches, or more than one.
    """
    patterns = {name: pattern for name in SPLITS if (pattern := getattr(split, name)) is not None}
    matching = [name for name, pattern in patterns.items() if PurePosixPath(path).match(pattern)]
    if len(matching) == 1:
        return SPLITS.index(matching[0])
    listed = ", ".join(f"{name}: {pattern!r}" for name, pattern in patterns.items())
    problem = "matches none of the patterns" if not matching else f"matches the patterns of {' and of '.join(matching)}"
    raise UsageError(f"{path}: {problem} under split ({listed}); expected each input file to match exactly one")


def splitmix64(start: int, count: int, seed: int = 0) -> np.ndarray:
    """Returns outputs of the random generator splitmix64, uint64 `[count]`.

    Args:
      start: the number of the first output, from 0.
      count: how many consecutive outputs are returned.
      seed: the seed of the generator.
    """
    return mix(np.uint64(seed) + np.arange(start + 1, start + count + 1, dtype=np.uint64) * GOLDEN)


def mix(z: np.ndarray) -> np.ndarray:
    """Applies the finaliser of splitmix64 to numbers, uint64 `[n]`: each input bit affects every output bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def canonical_bits(values: np.ndarray) -> np.ndarray:
    """Returns the bits of float32 numbers as uint64, after -0 became 0 and all NaNs became one."""
    with np.errstate(invalid="ignore"):  # a signalling NaN would cause a warning
        values = np.ascontiguousarray(values, np.float32) + np.float32(0)  # -0 + 0 is 0
    bits = values.view(np.uint32)
    missing = np.isnan(values)
    if missing.any():
        bits = np.where(missing, np.uint32(_CANONICAL_NAN), bits)
    return bits.astype(np.uint64)


def uneven_splits(schema: Schema, rows: Mapping[str, int]) -> str | None:
    """Returns a warning if the sizes of the splits differ from the schema's shares by more than chance; otherwise None.

    Rows of equal values, or of one group, are in the same split. If there are only few different values or groups, the
    shares cannot be kept.

    Args:
      schema: the schema of the rows.
      rows: the number of rows in each split.
    """
    split, total = schema.split, sum(rows.values())
    if not isinstance(split, HashSplit) or not total:
        return None
    shares = {name: share for name in SPLITS if (share := getattr(split, name))}
    differences = {name: abs(rows.get(name, 0) / total - share) for name, share in shares.items()}
    if not any(
        difference > max(_LEAST_DIFFERENCE, _LEAST_DEVIATIONS * math.sqrt(shares[name] * (1 - shares[name]) / total))
        for name, difference in differences.items()
    ):
        return None
    sizes = ", ".join(f"{name} {rows.get(name, 0):,} for {share * total:,.0f}" for name, share in shares.items())
    if split.by == "row":
        cause = (
            "rows of equal values are in one split, and few rows are distinct. To divide equal rows, number the rows "
            "in a column of the file, and divide by it: split: {by: [number]}"
        )
    else:
        cause = (
            f"rows that have the same {few(split.by)} are in one split, and these are few, or some have many rows. "
            "Divide by other columns, or by: row"
        )
    return f"the splits are uneven (rows, and what the schema's shares would give: {sizes}), since {cause}"
