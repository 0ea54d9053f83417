"""Reads stored requests back, group by group, as cells by column; also while a server writes them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping

from schemas.errors import UsageError
from schemas.formats import text
from trainer.request_store.segment import columns_in, csv_of, journal_path, numbers, read_groups, read_journal


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
class StoredSegment:
    """A file of stored requests. `token`: its own, whatever becomes of its number."""

    store: str
    number: int
    token: str
    schema: str
    columns: tuple[str, ...]

    def groups(self) -> Iterator[list[StoredRow]]:
        """Its rows, as they were written.

        Raises:
          MillraceError: bytes have changed since they were written.
        """
        place = 0
        csv = csv_of(read_journal(journal_path(self.store, self.number)).head)
        for group, data in read_groups(self.store, self.number):
            if not group.rows:
                continue  # the header
            rows = []
            for _, cells in text.records(data, csv):
                rows.append(StoredRow(place, dict(zip(self.columns, cells, strict=True))))
                place += 1
            yield rows


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
