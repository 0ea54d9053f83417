"""A file of stored requests, and the journal beside it that says what was written at once.

The file alone is flushed to disk before a group of rows counts, so that a group costs one flush. Every line ends with
its own CRC-32: when the file is opened again after a kill or a power cut, lines are taken while they are whole, and the
rest, which was never answered, is cut off. The journal spares that for what it lists: a line for each group, with its
own CRC-32, says where the group begins and ends, its CRC-32, and the latest time in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping

import pyarrow as pa

from millrace.store.columns import RECEIVED, seconds_of
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.formats import text
from schemas.spec.table import CsvOptions
from schemas.storage.json_files import parse_json

NAME = re.compile(r"requests-([0-9]{8})\.(csv|journal)")
FORMAT = 1


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


@dataclasses.dataclass(frozen=True)
class Journal:
    """What a journal says: its first line, its groups, and how many of its bytes are whole lines."""

    head: dict[str, object]
    groups: tuple[Group, ...]
    size: int

    @property
    def end(self) -> int:
        """How far the file is complete."""
        return self.groups[-1].end if self.groups else 0

    @property
    def last(self) -> float:
        """The latest time of a request; 0 where there is none."""
        return max((group.last for group in self.groups), default=0.0)


def read_journal(path: str) -> Journal:
    """Reads a journal up to its last whole line. An empty head: not even the first line is whole."""
    head: dict[str, object] = {}
    groups, size = [], 0
    for line in storage.read_bytes(path).splitlines(keepends=True):
        if not line.endswith(b"\n") or line[8:9] != b" " or line[:8] != b"%08x" % zlib.crc32(line[9:]):
            break
        entry = parse_json(line[9:])
        if size == 0:
            head = entry
        else:
            groups.append(Group(**entry))
        size += len(line)
    return Journal(head, tuple(groups), size)


def read_groups(folder: str, number: int, *, after: int = 0) -> Iterator[tuple[Group, bytes]]:
    """The groups of a segment that begin at byte `after` or later, with their bytes, checked.

    Raises:
      MillraceError: bytes of a group have changed since they were written.
    """
    path = csv_path(folder, number)
    journal = read_journal(journal_path(folder, number))
    with storage.wrap_errors(path), open(path, "rb") as file:
        for group in journal.groups:
            if group.start < after:
                continue
            file.seek(group.start)
            data = file.read(group.end - group.start)
            if zlib.crc32(data) != group.crc:
                raise MillraceError(
                    f"{path}: bytes {group.start:,} to {group.end:,} are not those that were written; restore the file"
                )
            yield group, data


class Segment:
    """The segment that is being written. Not thread-safe.

    Attributes:
      number: its place in the order.
      end: how many bytes of the file are complete.
    """

    def __init__(self, folder: str, number: int, handles: tuple[int, int], end: int, journal_end: int) -> None:
        self.number = number
        self.end = end
        self._folder = folder
        self._csv, self._journal = handles
        self._journal_end = journal_end

    @classmethod
    def create(cls, folder: str, number: int, head: dict[str, object], header: bytes) -> Segment:
        """Begins a file, with its header. Nothing is left of it if this raises OSError."""
        paths = journal_path(folder, number), csv_path(folder, number)
        opened: list[int] = []
        try:
            for path in paths:
                opened.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            journal, csv = opened
            line = _line({"format": FORMAT, **head})
            _write(journal, line, 0)
            segment = cls(folder, number, (csv, journal), 0, len(line))
            segment.append(header, rows=0, last=0.0)
            os.fsync(journal)
            storage.sync_folder(folder)
        except BaseException:
            for handle in opened:
                os.close(handle)
            for path in paths[: len(opened)]:
                os.unlink(path)
            raise
        return segment

    @classmethod
    def reopen(cls, folder: str, number: int) -> Segment | None:
        """Opens the last segment again, and cuts off what is not complete; None where not even its header is."""
        paths = journal_path(folder, number), csv_path(folder, number)
        journal = read_journal(paths[0]) if os.path.exists(paths[0]) else Journal({}, (), 0)
        groups = list(journal.groups)
        size = journal.size
        if os.path.exists(paths[1]):
            with open(paths[1], "rb") as file:
                while groups and not _holds(file.fileno(), groups[-1]):
                    size -= len(_line(dataclasses.asdict(groups.pop())))
        else:
            groups = []
        if not journal.head or not groups:
            for path in paths:
                storage.delete(path)
            return None
        handles = os.open(paths[1], os.O_RDWR), os.open(paths[0], os.O_RDWR)
        segment = cls(folder, number, handles, groups[-1].end, size)
        os.ftruncate(handles[1], size)
        segment.take_up(journal.head)
        segment.cut()
        return segment

    def take_up(self, head: dict[str, object]) -> None:
        """Takes the whole lines after the last group of the journal, which was not flushed with them."""
        options, received = csv_of(head), columns_in(head).index(RECEIVED)
        rest = os.fstat(self._csv).st_size - self.end
        data = os.pread(self._csv, rest, self.end)
        data = data[: text.whole_records(data, options)]
        found = list(text.records(data, options))
        if found:
            last = max(seconds_of(cells[received].decode()) for _, cells in found)
            self.append(data, rows=len(found), last=last)

    def append(self, data: bytes, *, rows: int, last: float) -> None:
        """Writes lines and has them on disk before it returns.

        Raises:
          OSError: they could not be written. Call `cut` before anything else.
        """
        group = Group(self.end, self.end + len(data), zlib.crc32(data), rows, last)
        line = _line(dataclasses.asdict(group))
        _write(self._csv, data, self.end)
        _write(self._journal, line, self._journal_end)
        os.fdatasync(self._csv)
        self.end = group.end
        self._journal_end += len(line)

    def cut(self) -> None:
        """Removes what was written and is not complete. Raises OSError."""
        for handle, end in ((self._csv, self.end), (self._journal, self._journal_end)):
            os.ftruncate(handle, end)
            os.fsync(handle)

    def read(self, start: int, size: int) -> bytes:
        """Some bytes of the file."""
        return os.pread(self._csv, size, start)

    def close(self) -> None:
        """Closes both files, after which they are complete on disk."""
        with contextlib.suppress(OSError):  # else the lines say it themselves
            os.fsync(self._journal)
        os.close(self._csv)
        os.close(self._journal)


def csv_of(head: dict[str, object]) -> CsvOptions:
    """How the lines of a segment are written."""
    return CsvOptions.model_validate({name: head[name] for name in ("delimiter", "quote")})


def columns_in(head: dict[str, object]) -> tuple[str, ...]:
    """The columns of a segment."""
    return tuple(str(name) for name in head["columns"])  # type: ignore[attr-defined]


def _holds(handle: int, group: Group) -> bool:
    data = os.pread(handle, group.end - group.start, group.start)
    return len(data) == group.end - group.start and zlib.crc32(data) == group.crc


def _line(entry: dict[str, object]) -> bytes:
    data = json.dumps(entry).encode() + b"\n"
    return b"%08x " % zlib.crc32(data) + data


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written


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
