"""A file of stored requests, and the journal beside it that says what was written at once; also read while written.

The file alone is flushed to disk before a group of rows counts, so that a group costs one flush. Every line ends with
its own CRC-32: when the file is opened again after a kill or a power cut, lines are taken while they are whole, and the
rest, which was never answered, is cut off. The journal spares that for what it lists: a line for each group, with its
own CRC-32, says where the group begins and ends, its CRC-32, and the latest time in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from millrace.store.columns import RECEIVED, seconds_of
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.table import CsvOptions
from schemas.storage.json_files import parse_json

NAME = re.compile(r"requests-([0-9]{8})\.(csv|journal)")
FORMAT = 1
AT_ONCE = 4 << 20  # bytes of rows that are read together


def csv_path(folder: str, number: int) -> str:
    """The lines of a segment."""
    return os.path.join(folder, f"requests-{number:08d}.csv")


def journal_path(folder: str, number: int) -> str:
    """Its journal."""
    return os.path.join(folder, f"requests-{number:08d}.journal")


def numbers(folder: str) -> list[int]:
    """The numbers of all segments, oldest first."""
    found = (NAME.fullmatch(name) for name in storage.listdir(folder))
    return sorted({int(match[1]) for match in found if match})


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that were written at once: bytes [start, end) of the file, and the latest time in them."""

    start: int
    end: int
    crc: int
    rows: int
    last: float

    def wrote(self, data: bytes) -> bool:
        """Whether these are the bytes that were written."""
        return len(data) == self.end - self.start and zlib.crc32(data) == self.crc


@dataclasses.dataclass(frozen=True)
class Journal:
    """What a journal says: its first line, its groups, and how many of its bytes are whole lines."""

    head: Mapping[str, Any]
    groups: tuple[Group, ...]
    size: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the segment."""
        return tuple(map(str, self.head["columns"]))

    @property
    def csv(self) -> CsvOptions:
        """How its lines are written."""
        return CsvOptions.model_validate({name: self.head[name] for name in ("delimiter", "quote")})

    @property
    def end(self) -> int:
        """How far the file is complete."""
        return self.groups[-1].end if self.groups else 0

    @property
    def last(self) -> float:
        """The latest time of a request; 0 where there is none."""
        return max((group.last for group in self.groups), default=0.0)


def read_journal(folder: str, number: int) -> Journal:
    """Reads a journal up to its last whole line. An empty head: not even the first line is whole."""
    head: dict[str, Any] = {}
    groups, size = [], 0
    for line in storage.read_bytes(journal_path(folder, number)).splitlines(keepends=True):
        if not line.endswith(b"\n") or line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
            break
        entry = parse_json(line[9:])
        if size == 0:
            head = entry
        else:
            groups.append(Group(**entry))
        size += len(line)
    return Journal(head, tuple(groups), size)


def read_groups(folder: str, number: int, journal: Journal, *, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """The groups of rows of a segment that begin at byte `after` or later: where each begins, and its bytes, checked.

    Raises:
      MillraceError: bytes of a group have changed since they were written.
    """
    path = csv_path(folder, number)
    with storage.wrap_errors(path), open(path, "rb") as file:
        for group in journal.groups:
            if group.start < after:
                continue
            file.seek(group.start)
            data = file.read(group.end - group.start)
            if not group.wrote(data):
                raise MillraceError(
                    f"{path}: bytes {group.start:,} to {group.end:,} are not those that were written; restore the file"
                )
            if group.rows:  # else it is the header
                yield group.start, data


class Segment:
    """The segment that is being written. Not thread-safe.

    Attributes:
      number: its place in the order.
      end: how many bytes of the file are complete.
      torn: whether more was written, which must be cut off.
    """

    def __init__(self, number: int, handles: tuple[int, int], end: int, journal_end: int) -> None:
        self.number = number
        self.end = end
        self.torn = False
        self._csv, self._journal = handles
        self._journal_end = journal_end

    @classmethod
    def create(cls, folder: str, number: int, head: Mapping[str, Any], header: bytes) -> Segment:
        """Begins a file, with its header. Nothing is left of it if this raises OSError."""
        with contextlib.ExitStack() as undo:
            handles = []
            for path in (journal_path(folder, number), csv_path(folder, number)):
                handles.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                undo.callback(os.unlink, path)
                undo.callback(os.close, handles[-1])
            journal, csv = handles
            line = _line({"format": FORMAT, **head})
            _write(journal, line, 0)
            segment = cls(number, (csv, journal), 0, len(line))
            segment.append(header, rows=0, last=0.0)
            os.fsync(journal)
            storage.sync_folder(folder)
            undo.pop_all()
        return segment

    @classmethod
    def reopen(cls, folder: str, number: int) -> Segment | None:
        """Opens the last segment again, and cuts off what is not complete; None where not even its header is.

        Whole lines after the last group of the journal, which was not flushed with them, are taken.
        """
        paths = csv_path(folder, number), journal_path(folder, number)
        journal = read_journal(folder, number) if os.path.exists(paths[1]) else Journal({}, (), 0)
        groups, size = list(journal.groups), journal.size
        csv = os.open(paths[0], os.O_RDWR)
        while groups and not groups[-1].wrote(os.pread(csv, groups[-1].end - groups[-1].start, groups[-1].start)):
            size -= len(_line(dataclasses.asdict(groups.pop())))
        if not groups:
            os.close(csv)
            for path in paths:
                storage.delete(path)
            return None
        handle = os.open(paths[1], os.O_RDWR)
        os.ftruncate(handle, size)
        segment = cls(number, (csv, handle), groups[-1].end, size)
        data = os.pread(csv, os.fstat(csv).st_size - segment.end, segment.end)
        data = data[: text.whole_records(data, journal.csv)]
        received = journal.columns.index(RECEIVED)
        times = [seconds_of(cells[received].decode()) for _, cells in text.records(data, journal.csv)]
        if times:
            segment.append(data, rows=len(times), last=max(times))
        segment.cut()
        return segment

    def append(self, data: bytes, *, rows: int, last: float) -> None:
        """Writes lines and has them on disk before it returns.

        Raises:
          OSError: they could not be written. Call `cut` before anything else.
        """
        group = Group(self.end, self.end + len(data), zlib.crc32(data), rows, last)
        line = _line(dataclasses.asdict(group))
        self.torn = True
        _write(self._csv, data, self.end)
        _write(self._journal, line, self._journal_end)
        os.fdatasync(self._csv)
        self.torn = False
        self.end = group.end
        self._journal_end += len(line)

    def cut(self) -> None:
        """Removes what was written and is not complete. Raises OSError."""
        for handle, end in ((self._csv, self.end), (self._journal, self._journal_end)):
            os.ftruncate(handle, end)
            os.fsync(handle)

    def close(self) -> None:
        """Closes both files, after which they are complete on disk."""
        with contextlib.suppress(OSError):  # else the lines say it themselves
            os.fsync(self._journal)
        os.close(self._csv)
        os.close(self._journal)


def _line(entry: dict[str, object]) -> bytes:
    data = json.dumps(entry).encode() + b"\n"
    return b"%08x " % zlib.crc32(data) + data


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written


@dataclasses.dataclass(frozen=True)
class StoredRows:
    """Rows of a segment, one after the other.

    Attributes:
      place: of the first among all rows of the segment, from 0.
      columns: the cells, binary `[rows]`.
      size: bytes of the file that they take.
    """

    place: int
    columns: Mapping[str, pa.BinaryArray]
    size: int

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclasses.dataclass(frozen=True)
class StoredSegment:
    """A file of stored requests. `token`: its own, whatever becomes of its number."""

    store: str
    number: int
    token: str
    schema: str
    columns: tuple[str, ...]

    def groups(self) -> Iterator[StoredRows]:
        """Its rows, in the order in which they were written, as cells by column.

        Raises:
          MillraceError: bytes have changed since they were written.
        """
        journal = read_journal(self.store, self.number)
        place, some = 0, bytearray()
        for start, data in read_groups(self.store, self.number, journal):
            some += data
            if len(some) >= AT_ONCE or start + len(data) == journal.end:
                cells = text.columns(bytes(some), journal.csv, len(self.columns))
                rows = StoredRows(place, dict(zip(self.columns, cells, strict=True)), len(some))
                yield rows
                place, some = place + len(rows), bytearray()

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
    journals = [(number, read_journal(store, number)) for number in numbers(store)]
    return [
        StoredSegment(store, number, str(journal.head["token"]), str(journal.head["schema"]), journal.columns)
        for number, journal in journals
        if journal.head
    ]
