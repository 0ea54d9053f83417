"""Records that occur twice: a 64-bit hash of each record, which is never stored, with its location. Mergeable.

Where they are too many, those are kept whose hash begins with zero bits. So equal records are kept or dropped together,
and what is kept depends neither on the order of the records nor on how they were distributed over workers.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.split_hash import GOLDEN, mix, splitmix64
from schemas.spec.table import SPLITS
from schemas.storage.json_files import parse_json

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


_META = b"hashes"
HASH = "hash"  # uint64: of what is compared
SPLIT = "split"  # int8: index into `schemas.spec.table.SPLITS`
BUDGET = 32 * 2**20  # bytes of the hashes of all records

ROWS = pa.schema(
    [
        (HASH, pa.uint64()),
        (SPLIT, pa.int8()),
        ("label", pa.uint64()),  # a hash of the label
        ("file", pa.int64()),  # the input's key
        ("offset", pa.int64()),
    ]
)
KEYS = pa.schema([field for field in ROWS if field.name != "label"])
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
    """The hashes of some records.

    Attributes:
      records: how many there are, with those whose hashes were dropped.
      zeros: with how many zero bits the hashes of those begin that are kept: one in 2^zeros is.
      table: the hashes that are kept.
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
        """Adds records: a column for each field of the schema."""
        table = pa.table(columns, schema=self.schema)
        self.records += table.num_rows
        self._join(table)

    def merge(self, other: RecordHashes) -> None:
        """Adds what the other one holds."""
        self.records += other.records
        if other.zeros > self.zeros:
            self._drop(other.zeros)
        self._join(other.table)

    def write(self, sink: pa.NativeFile, name: str) -> None:
        """Writes the hashes under a name, as an Arrow stream."""
        meta = {"name": name, "records": self.records, "zeros": self.zeros, "budget": self._budget, "most": self._most}
        table = self.table.replace_schema_metadata({_META: json.dumps(meta)})
        with pa.ipc.new_stream(sink, table.schema) as writer:  # not compressed: hashes do not become smaller
            writer.write_table(table)

    @staticmethod
    def read(source: pa.NativeFile) -> tuple[str, RecordHashes]:
        """The next hashes that `write` wrote, and their name."""
        table = pa.ipc.open_stream(source).read_all()
        meta = parse_json(table.schema.metadata[_META])
        hashes = RecordHashes(table.schema.remove_metadata(), budget=meta["budget"], most=meta["most"])
        hashes.zeros = meta["zeros"]
        hashes.add(dict(zip(table.schema.names, table.columns, strict=True)))
        hashes.records = meta["records"]
        return meta["name"], hashes

    @property
    def share(self) -> float:
        """The share of the hashes that are kept."""
        return 2.0**-self.zeros

    def keeps(self, hashes: np.ndarray) -> np.ndarray:
        """bool `[n]`: which of these hashes would be kept, if they were added now."""
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
    """The rows whose hashes begin with this many zero bits."""
    if not zeros or not table.num_rows:
        return table
    kept = _begins(np.asarray(table.column(HASH)), zeros)
    return table if kept.all() else table.take(pa.array(np.flatnonzero(kept)))


def _size(table: pa.Table) -> int:
    """The bytes of the values alone, which do not depend on how they are cut into chunks."""
    total = 0
    for column in table.columns:
        if pa.types.is_binary(column.type):
            total += 4 * len(column) + (pc.sum(pc.binary_length(column)).as_py() or 0)
        else:
            total += len(column) * max(1, column.type.bit_width // 8)
    return total


EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Shared:
    """What two splits share.

    Attributes:
      splits: the two, the one that comes first in `SPLITS` first.
      records: of the second one, how many have an equal one in the first.
      of: how many records of the second one were looked at.
      pairs: rows of the table, an example of the first split beside one of the second.
    """

    splits: tuple[str, str]
    records: int
    of: int
    pairs: tuple[tuple[int, int], ...]

    def told(self) -> dict[str, Any]:
        """As JSON values, without the pairs."""
        return {"splits": list(self.splits), "records": self.records, "of": self.of}


def occurring_twice(table: pa.Table) -> pa.Table:
    """The rows whose hash another row has, too: one sort, after which most tables are small."""
    hashes = np.asarray(table.column(HASH))
    order = np.argsort(hashes)
    again = np.zeros(len(hashes) + 1, bool)  # whether a hash equals the one before it, in order
    again[1:-1] = hashes[order[1:]] == hashes[order[:-1]]
    repeats = np.zeros(len(hashes), bool)
    repeats[order] = again[:-1] | again[1:]
    return table if repeats.all() else table.filter(pa.array(repeats))


def counts(splits: np.ndarray) -> np.ndarray:
    """How many of some records are in each split: int64 `[len(SPLITS)]`."""
    return np.bincount(splits, minlength=len(SPLITS))


def shared(values: np.ndarray, splits: np.ndarray, of: np.ndarray) -> list[Shared]:
    """Which values occur in two splits, for every two splits that share one.

    Args:
      values: uint64 `[n]`.
      splits: int8 `[n]`.
      of: `counts` of all that were looked at, those without an equal one among them.
    """
    pairs_of_splits = []
    for second in range(1, len(SPLITS)):
        theirs = np.flatnonzero(splits == second)
        for first in range(second):
            ours = np.flatnonzero(splits == first)
            both = np.flatnonzero(np.isin(values[theirs], values[ours]))
            if len(both):
                pairs = _pairs(values, ours, theirs[both])
                pairs_of_splits.append(Shared((SPLITS[first], SPLITS[second]), len(both), int(of[second]), pairs))
    return pairs_of_splits


def _pairs(values: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Examples of equal values: those of the smallest ones, which are the same ones in any order."""
    smallest = np.unique(values[theirs])[:EXAMPLES]
    pairs = []
    for value in smallest:
        pairs.append((int(ours[values[ours] == value][0]), int(theirs[values[theirs] == value][0])))
    return tuple(pairs)


def repeated(values: np.ndarray) -> int:
    """How many values occurred before: what would go if each stayed once."""
    in_order = np.sort(values)  # np.unique hashes, which takes longer
    return int((in_order[1:] == in_order[:-1]).sum())


def with_two_labels(hashes: np.ndarray, labels: np.ndarray) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The values that occur with more than one label.

    Args:
      hashes: uint64 `[n]`.
      labels: int64 `[n]`.

    Returns:
      How many values these are, and examples: two places with one value and different labels.
    """
    order = np.lexsort((labels, hashes))
    value, label = hashes[order], labels[order]
    differ = np.flatnonzero((value[1:] == value[:-1]) & (label[1:] != label[:-1]))
    _, firsts = np.unique(value[differ], return_index=True)
    pairs = tuple((int(order[i]), int(order[i + 1])) for i in differ[firsts[:EXAMPLES]])
    return len(firsts), pairs


def ordered(table: pa.Table, *by: str) -> pa.Table:
    """A table in an order that depends on what it holds alone."""
    return table.sort_by([(name, "ascending") for name in (HASH, SPLIT, *by)])
