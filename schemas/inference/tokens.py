"""The values that files write where there is no value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# They mean missing wherever they stand.
ALWAYS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NULL", "null", "Null", "\\N", "NaT")
# They mean missing where everything else is a number; elsewhere they may be a category of their own.
AMONG_NUMBERS = ("None", "none", "-", "--", ".", "*", "unknown", "Unknown", "missing", "Missing", "inf", "-inf", "Inf")
ALL = ALWAYS + AMONG_NUMBERS
SENTINELS = ("-1", "-9", "-99", "-999", "-9999", "-99999", "999", "9999", "99999")  # numbers that may stand for none

_SET = pa.array([token.encode() for token in ALL], pa.binary())


def count_tokens(values: pa.BinaryArray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which trimmed distinct values are tokens.

    Args:
        values: binary `[n]`.
        counts: int64 `[n]`, how often each value occurs.

    Returns:
        bool `[n]`, and int64 `[len(ALL)]`: how often each token occurs.
    """
    places = pc.index_in(values, value_set=_SET)
    found = np.zeros(len(ALL), np.int64)
    if places.null_count == len(values):
        return np.zeros(len(values), bool), found
    known = places.is_valid().to_numpy(zero_copy_only=False)
    np.add.at(found, places.drop_null().to_numpy(), counts[known])
    return known, found
