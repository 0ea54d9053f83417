"""What is kept of records in order to find equal ones: a hash of each, and where it stands. Bounded, and mergeable.

Where they are too many, those are kept whose hash begins with zero bits. So equal records are kept or dropped together,
and what is kept depends neither on the order of the records nor on how they were distributed over workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HASH = "hash"  # uint64: of what is compared
SPLIT = "split"  # int8: index into `schemas.spec.table.SPLITS`
BUDGET = 32 * 2**20  # bytes of the traces of all records

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
        ("across", pa.uint64()),  # see `beam_jobs.leakage.looks`
        ("down", pa.uint64()),
        ("clear", pa.bool_()),
        ("label", pa.binary()),
        ("path", pa.binary()),
    ]
)


class Traces:
    """The traces of some records.

    Attributes:
      records: how many there are, with those whose traces were dropped.
      zeros: with how many zero bits the hashes of those begin that are kept: one in 2^zeros is.
    """

    def __init__(self, schema: pa.Schema, *, records: int = 0, zeros: int = 0, budget: int = BUDGET) -> None:
        self.schema = schema
        self.records = records
        self.zeros = zeros
        self._budget = budget
        self._kept = schema.empty_table()
        self._bytes = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Adds records: a column for each field of the schema."""
        found = pa.table(columns, schema=self.schema)
        self.records += found.num_rows
        self._join(found)

    def merge(self, other: Traces) -> None:
        """Adds what the other one holds."""
        self.records += other.records
        if other.zeros > self.zeros:
            self._drop(other.zeros)
        self._join(other.table)

    @property
    def share(self) -> float:
        """The share of the hashes that are kept."""
        return 2.0**-self.zeros

    @property
    def table(self) -> pa.Table:
        """The traces that are kept."""
        return self._kept

    def _join(self, found: pa.Table) -> None:
        found = _beginning(found, self.zeros)
        self._kept = pa.concat_tables([self._kept, found])
        self._bytes += _size(found)
        while self._bytes > self._budget:
            self._drop(self.zeros + 1)

    def _drop(self, zeros: int) -> None:
        self.zeros = zeros
        self._kept = _beginning(self._kept, zeros)
        self._bytes = _size(self._kept)

    def to_bytes(self) -> bytes:
        """An Arrow stream."""
        sink = pa.BufferOutputStream()
        meta = {"records": str(self.records), "zeros": str(self.zeros)}
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, self.schema.with_metadata(meta), options=options) as writer:
            writer.write_table(self._kept)
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes, *, budget: int = BUDGET) -> Traces:
        """Reads `to_bytes`."""
        table = pa.ipc.open_stream(data).read_all()
        meta = table.schema.metadata
        schema, records, zeros = table.schema.remove_metadata(), int(meta[b"records"]), int(meta[b"zeros"])
        found = Traces(schema, zeros=zeros, budget=budget)
        found.add({name: table.column(name) for name in schema.names})
        found.records = records
        return found


def _beginning(table: pa.Table, zeros: int) -> pa.Table:
    """The rows whose hashes begin with this many zero bits."""
    if not zeros or not table.num_rows:
        return table
    hashes = np.asarray(table.column(HASH))
    kept = hashes >> np.uint64(64 - zeros) == 0
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
