"""Reads a complete shard and checks its bytes against the manifest, and its records against checksums and schema."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.check_records import RecordCheck
from schemas.dataset.issues import Issue, Tally
from schemas.dataset.manifest import Shard
from schemas.errors import MillraceError
from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, gunzip, read_frames

CHUNK = 1 << 20  # bytes read at once
MAX_LISTED = 10  # records of a shard that are reported one by one

Content = tuple[int, str]  # a file's bytes and their crc32c


@dataclasses.dataclass
class _Seen:
    """What was found in a shard."""

    bytes: int = 0
    rows: int = 0
    crc: google_crc32c.Checksum = dataclasses.field(default_factory=google_crc32c.Checksum)
    damaged: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)  # record, its frame's start and end
    faults: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)  # record, its frame's start, message
    broken: str = ""  # why the rest cannot be read

    @property
    def content(self) -> Content:
        return self.bytes, self.crc.hexdigest().decode()


@dataclasses.dataclass(frozen=True)
class ShardCheck:
    """Checks the shards of one dataset.

    Attributes:
      data_dir: the dataset directory.
      compressed: whether the shards are gzip'd.
      by_content: the paths of all its shards by content, to recognize swapped shards.
      record_check: makes a `RecordCheck` for each shard; None: records are not checked against the schema.
    """

    data_dir: str
    compressed: bool
    by_content: dict[Content, list[str]]
    record_check: Callable[[], RecordCheck] | None

    def __call__(self, shard: Shard, tally: Tally) -> list[Issue]:
        """All issues of a shard. Memory: a few MB and one record, whatever the shard's size."""
        path = layout.join(self.data_dir, shard.path)
        if not storage.exists(path):
            return [Issue(shard.path, "missing", "is missing. Restore it, or write the dataset again.")]
        seen = _Seen()
        try:
            with storage.wrap_errors(path), storage.open_read(path) as file:
                chunks = _chunks(file, seen, tally)
                self._read(chunks, seen, tally)
                collections.deque(chunks, maxlen=0)  # the rest, if reading stopped early, for size and checksum
        except MillraceError as error:
            return [Issue(shard.path, "unreadable", f"cannot be read to the end: {error}")]
        tally.add(files=1)
        return list(self._issues(shard, seen))

    def _read(self, chunks: Iterator[bytes], seen: _Seen, tally: Tally) -> None:
        check = self.record_check() if self.record_check else None
        try:
            for frames in read_frames(gunzip(chunks) if self.compressed else chunks):
                seen.rows += len(frames.records)
                tally.add(rows=len(frames.records))
                seen.damaged += [(frames.first + i, frames.offsets[i], frames.offsets[i + 1]) for i in frames.damaged]
                if check:
                    intact = np.delete(np.arange(len(frames.records)), frames.damaged).tolist()
                    for i, what in check([frames.records[i] for i in intact]).items():
                        seen.faults.append((frames.first + intact[i], frames.offsets[intact[i]], what))
        except BrokenFileError as error:
            seen.broken = f"record {error.record:,} at byte {error.offset:,}: {error.reason}"
        except BrokenGzipError as error:
            seen.broken = f"after {seen.rows:,} complete records, at compressed {error}"

    def _issues(self, shard: Shard, seen: _Seen) -> Iterator[Issue]:
        written = (shard.bytes, shard.crc32c)
        others = [path for path in self.by_content.get(seen.content, ()) if path != shard.path]
        if seen.content != written and others:
            yield Issue(shard.path, "swapped", f"holds the bytes of {' and of '.join(others)}")
            return
        problems = [*_ends(shard, seen), *_damaged(shard, seen)]
        if seen.content == written and not seen.broken and seen.rows != shard.rows:
            message = f"holds {seen.rows:,} records, and {layout.MANIFEST} says {shard.rows:,}"
            problems.append(Issue(shard.path, "rows", message))
        elif seen.content != written and not problems:
            size, crc = seen.content
            message = (
                f"is not the file that was written: {seen.rows:,} records in {size:,} bytes, crc32c {crc}, and "
                f"{layout.MANIFEST} says {shard.rows:,} in {shard.bytes:,}, {shard.crc32c}"
            )
            problems.append(Issue(shard.path, "changed", message))
        yield from problems
        for record, offset, what in seen.faults[:MAX_LISTED]:
            yield Issue(shard.path, "record", f"record {record:,} at byte {offset:,}: {what}")
        if more := len(seen.faults[MAX_LISTED:]):
            yield Issue(shard.path, "record", f"{more:,} more records that do not match the schema")


def _ends(shard: Shard, seen: _Seen) -> Iterator[Issue]:
    """An issue if the file is truncated, or cannot be read beyond some record."""
    readable = f"{seen.rows:,} of its {shard.rows:,} records can be read"
    if seen.bytes < shard.bytes:
        where = seen.broken or f"after record {seen.rows - 1:,}, at the boundary of a record"
        left = f"{seen.bytes:,} of {shard.bytes:,} bytes are left"
        yield Issue(shard.path, "cut", f"{left}, truncated: {where}; {readable}")
    elif seen.broken:
        yield Issue(shard.path, "damaged", f"{seen.broken}; {readable}")


def _damaged(shard: Shard, seen: _Seen) -> Iterator[Issue]:
    """Records that do not match their own checksums."""
    for record, start, end in seen.damaged[:MAX_LISTED]:
        message = f"record {record:,} at bytes {start:,} to {end:,}: does not match its checksum"
        yield Issue(shard.path, "damaged", message)
    if more := len(seen.damaged[MAX_LISTED:]):
        yield Issue(shard.path, "damaged", f"{more:,} more records do not match their checksums")


def _chunks(file: BinaryIO, seen: _Seen, tally: Tally) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        if tally.stop.is_set():
            return
        seen.crc.update(chunk)
        seen.bytes += len(chunk)
        tally.add(bytes=len(chunk))
        yield chunk
