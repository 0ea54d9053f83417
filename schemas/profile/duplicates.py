"""Collects 64-bit hashes of records, with the records' places, to find records that occur twice.

If there are too many records, only hashes that begin with some zero bits are kept. Equal records have equal hashes, so
either all copies of a record are kept or all are dropped, in whatever order and by whichever worker they were added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.split_hash import GOLDEN, mix, splitmix64

_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_LONGEST = 1 << 16  # later bytes of a value begin again with the first multiplier


def place_hash(file: int | np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns a hash of each record's place, uint64 `[n]`.

    Args:
      file: the key of the input file: one key for all records, or one for each record, `[n]`.
      offsets: the offset of each record in its input file, int64 `[n]`.
    """
    with np.errstate(over="ignore"):
        return mix(offsets.astype(np.uint64) * GOLDEN + np.asarray(file + 1, np.uint64) * _FACTOR)


_FACTORS = splitmix64(1 << 40, _LONGEST) | np.uint64(1)


def value_hashes(values: pa.BinaryArray) -> np.ndarray:
    """Returns a hash of each value, uint64 `[n]`.

    Each byte is multiplied by a factor that depends on the byte's place in its value. The products of a value are
    added, and the sum is mixed with the value's length.
    """
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
        # The bytes of all values lie one after the other. `places` is the place of each byte within its own value.
        places = np.arange(len(codes)) - np.repeat(offsets[:-1] - offsets[0], lengths)
        codes += np.uint64(1)
        codes *= _FACTORS[places % _LONGEST]
        sums[filled] = np.add.reduceat(codes, offsets[:-1][filled] - offsets[0])
    return mix(sums + lengths.astype(np.uint64) * GOLDEN)


HASH = "hash"  # uint64: of what is compared
SPLIT = "split"  # int8: index into `schemas.spec.table.SPLITS`
BUDGET = 32 * 2**20  # bytes of the hashes of all records

ROWS = pa.schema(  # of rows, or of their keys
    [
        (HASH, pa.uint64()),
        (SPLIT, pa.int8()),
        ("file", pa.int64()),  # the input's key
        ("offset", pa.int64()),
    ]
)
IMAGES = pa.schema(
    [
        (HASH, pa.uint64()),  # of the file's bytes
        (SPLIT, pa.int8()),
        ("across", pa.uint64()),  # see `schemas.profile.near_duplicates`
        ("down", pa.uint64()),
        ("clear", pa.bool_()),
        ("label", pa.binary()),
        ("path", pa.binary()),
    ]
)


class RecordHashes:
    """The hashes of records, or a sample of these hashes if there are too many.

    Args:
      schema: the columns of `table`, such as ROWS or IMAGES.
      budget: the largest size of `table`, in bytes.
      most: the largest number of rows of `table`; with None, only `budget` limits the table.

    Attributes:
      records: the number of records that were added, including records whose hashes were dropped.
      zeros: only hashes that begin with this number of zero bits are kept, about one hash in 2^zeros.
      table: the hashes that are kept, with the other columns of `schema`.
    """

    def __init__(self, schema: pa.Schema, *, budget: int = BUDGET, most: int | None = None) -> None:
        self.schema = schema
        self.records = 0
        self.zeros = 0
        self._budget = budget
        self._most = most
        self.table = schema.empty_table()
        self._bytes = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Adds records, given as one column for each field of the schema."""
        table = pa.table(columns, schema=self.schema)
        self.records += table.num_rows
        self._join(table)

    def merge(self, other: RecordHashes) -> None:
        """Adds the hashes of another `RecordHashes` with the same schema."""
        self.records += other.records
        if other.zeros > self.zeros:
            self._drop(other.zeros)
        self._join(other.table)

    @property
    def share(self) -> float:
        """The share of the hashes that are kept."""
        return 2.0**-self.zeros

    def keeps(self, hashes: np.ndarray) -> np.ndarray:
        """Tells which of these hashes would stay if they were added now, bool `[n]`."""
        return _begins(hashes, self.zeros)

    def _join(self, table: pa.Table) -> None:
        table = _beginning(table, self.zeros)
        self.table = pa.concat_tables([self.table, table])
        self._bytes += _size(table)
        while self._bytes > self._budget or (self._most is not None and self.table.num_rows > self._most):
            self._drop(self.zeros + 1)

    def _drop(self, zeros: int) -> None:
        self.zeros = zeros
        self.table = _beginning(self.table, zeros)
        self._bytes = _size(self.table)


def _begins(hashes: np.ndarray, zeros: int) -> np.ndarray:
    return hashes >> np.uint64(64 - zeros) == 0 if zeros else np.ones(len(hashes), bool)


def _beginning(table: pa.Table, zeros: int) -> pa.Table:
    """Returns the rows of a table with a hash that begins with `zeros` zero bits."""
    if not zeros or not table.num_rows:
        return table
    stays = _begins(np.asarray(table.column(HASH)), zeros)
    return table if stays.all() else table.take(pa.array(np.flatnonzero(stays)))


def _size(table: pa.Table) -> int:
    """Returns the size of a table's values in bytes. The size does not depend on the table's chunks."""
    total = 0
    for column in table.columns:
        if pa.types.is_binary(column.type):
            total += 4 * len(column) + (pc.sum(pc.binary_length(column)).as_py() or 0)
        else:
            total += len(column) * max(1, column.type.bit_width // 8)
    return total
