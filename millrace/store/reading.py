"""Reads stored requests back, group by group, as cells by column; also while a server writes them."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping

import pyarrow as pa

from millrace.store.segment import columns_in, csv_of, csv_path, journal_path, numbers, read_groups, read_journal
from schemas.errors import UsageError
from schemas.formats import text

AT_ONCE = 4 << 20  # bytes of rows that are read together


@dataclasses.dataclass(frozen=True)
class StoredRow:
    """A stored row.

    Attributes:
      place: its place among the rows of its segment, from 0.
      cells: by column.
    """

    place: int
    cells: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True)
class StoredRows:
    """Rows of a segment, one after the other.

    Attributes:
      place: of the first.
      columns: the cells, binary `[rows]`.
      size: bytes of the file that they take.
    """

    place: int
    columns: Mapping[str, pa.BinaryArray]
    size: int

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[StoredRow]:
        names = tuple(self.columns)
        rows = zip(*(column.to_pylist() for column in self.columns.values()), strict=True)
        for place, cells in enumerate(rows, start=self.place):
            yield StoredRow(place, dict(zip(names, cells, strict=True)))


@dataclasses.dataclass(frozen=True)
class StoredSegment:
    """A file of stored requests. `token`: its own, whatever becomes of its number."""

    store: str
    number: int
    token: str
    schema: str
    columns: tuple[str, ...]

    def groups(self) -> Iterator[StoredRows]:
        """Its rows, in the order in which they were written.

        Raises:
          MillraceError: bytes have changed since they were written.
        """
        place = size = 0
        csv = csv_of(read_journal(journal_path(self.store, self.number)).head)
        some: list[bytes] = []
        for group, data in itertools.chain(read_groups(self.store, self.number), [(None, b"")]):
            if group is not None and not group.rows:
                continue  # the header
            if some and (group is None or size + len(data) > AT_ONCE):
                cells = text.columns(b"".join(some), csv, len(self.columns))
                rows = StoredRows(place, dict(zip(self.columns, cells, strict=True)), size)
                yield rows
                place, size, some = place + len(rows), 0, []
            some.append(data)
            size += len(data)

    def size(self) -> int:
        """How many bytes its rows take, about."""
        return os.path.getsize(csv_path(self.store, self.number))


def stored_segments(store: str) -> list[StoredSegment]:
    """The files of a store, oldest first.

    Raises:
      UsageError: there is no store.
    """
    if not os.path.isdir(store):
        raise UsageError(f"{store}: no such folder; give the --store of a server")
    found = []
    for number in numbers(store):
        head = read_journal(journal_path(store, number)).head
        if head:
            found.append(StoredSegment(store, number, str(head["token"]), str(head["schema"]), columns_in(head)))
    return found
