"""Groups of ranges that are read together, and the cache of what was decoded of them. Neither Beam nor TensorFlow.

Small files are read together: a group of ranges is one element of the pipeline, since each element, and each batch,
costs milliseconds in Beam and in the transform's graph, which is more than it takes to read a file of a few rows.

What is decoded of a group before its second read is cached on local disk, as an Arrow file with LZ4. Writing and
reading it takes a seventh of the time of decoding the CSV, and half the CSV's disk space. It is optional: what is not
cached is decoded again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import BATCH_BYTES, Decoded, RowFile, RowRange, batch_bytes
from schemas.spec.table import Schema
from schemas.storage import file_key
from schemas.storage.json_files import parse_json

GROUP_BYTES = 1 << 20  # of a group of several ranges
GROUP_RANGES = 256
JOINED_ROWS = 1024
UNIT_BYTES = 64 << 20  # of a unit: merging the summaries of a thousand columns takes a tenth of a second

Group = tuple[RowRange, ...]
Unit = tuple[Group, ...]  # what profiles are collected of, before they are merged
Place = tuple[int, int]  # of a record: its file's key, and its offset
InGroup = tuple[int, Decoded]  # a batch, with the place of its range in the group


@dataclasses.dataclass(frozen=True)
class CorrectedRecords:
    """Corrected records of one file, which may be gone, with their offsets. Implements `schemas.rows.RowRange`."""

    file: RowFile
    raws: tuple[bytes, ...]
    offsets: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.start + self.covers

    @property
    def covers(self) -> int:
        return sum(map(len, self.raws))


def range_bytes(part: RowRange) -> int:
    """The size of a range; of a compressed file, as it is on disk."""
    return (part.file.size if part.end is None else part.end) - part.start


def grouped(ranges: Iterable[RowRange], *, group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
    """Groups consecutive ranges, in order: those that are small together, and each other one by itself."""
    group: list[RowRange] = []
    size = 0
    for part in ranges:
        if group and (size + range_bytes(part) > group_bytes or len(group) == GROUP_RANGES):
            yield tuple(group)
            group, size = [], 0
        group.append(part)
        size += range_bytes(part)
    if group:
        yield tuple(group)


def units_of(groups: Iterable[Group]) -> Iterator[Unit]:
    """Consecutive groups, in order, that have about UNIT_BYTES together."""
    unit: list[Group] = []
    size = 0
    for group in groups:
        unit.append(group)
        size += sum(map(range_bytes, group))
        if size >= UNIT_BYTES:
            yield tuple(unit)
            unit, size = [], 0
    if unit:
        yield tuple(unit)


def unit_starts(units: Iterable[Unit]) -> list[Place]:
    """Where each unit begins: all its records have this place or a later one."""
    return [(file_key(unit[0][0].file.path), unit[0][0].start) for unit in units]


def joined(
    decoded: Iterable[InGroup], group: Group, *, most_bytes: int = BATCH_BYTES
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a group, its batches joined to batches of about JOINED_ROWS; those of one range as they are.

    Nothing is joined to a batch of more than `most_bytes`.

    Yields:
      A batch that has rows, and for each of them the place of its range in the group, int64 `[rows]`.
    """
    pending: list[InGroup] = []
    rows = size = 0
    for place, item in decoded:
        if not item.batch.num_rows:
            continue
        if pending and size + item.batch.nbytes > most_bytes:
            yield _joined(pending)
            pending, rows, size = [], 0, 0
        pending.append((place, item))
        rows += item.batch.num_rows
        size += item.batch.nbytes
        if len(group) == 1 or rows >= JOINED_ROWS:
            yield _joined(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(items: Sequence[InGroup]) -> tuple[pa.RecordBatch, np.ndarray]:
    places = np.repeat([place for place, _ in items], [item.batch.num_rows for _, item in items])
    batches = [item.batch for _, item in items]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches), places


def decode(group: Group, schema: Schema, *, digests: bool) -> Iterator[InGroup]:
    """Decodes the records of a group. `digests`: and takes the digests of the files' blocks.

    Raises:
      MillraceError: a file cannot be read, or has changed.
    """
    form, size = row_format(schema), batch_bytes(schema)
    for place, part in enumerate(group):
        if isinstance(part, CorrectedRecords):
            yield place, form.decode_records(part.file, schema, part.raws, part.offsets)
            continue
        for decoded in form.read_range(part, schema, with_split=True, digests=digests, batch_bytes=size):
            yield place, decoded


_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_BESIDE = b"beside"  # the metadata key of what a batch has beside its rows


def cache_path(folder: str, group: Group) -> str:
    """The cache file of a group of ranges."""
    name = "\0".join(f"{part.file.path}\0{part.start}\0{part.end}" for part in group).encode()
    return os.path.join(folder, f"decoded-{hashlib.blake2b(name, digest_size=16).hexdigest()}.arrow")


def write_through(path: str, batches: Iterator[InGroup]) -> Generator[InGroup, None, None]:
    """Yields `batches` and writes them to a cache file, which appears when it is complete; a full disk disables it."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    files = contextlib.ExitStack()
    writer: pa.ipc.RecordBatchFileWriter | None = None
    intact = True
    try:
        for place, decoded in batches:
            try:
                if intact and writer is None:
                    file = files.enter_context(pa.OSFile(temporary, "wb"))
                    writer = files.enter_context(pa.ipc.new_file(file, decoded.batch.schema, options=_OPTIONS))
                if intact and writer is not None:
                    writer.write_batch(decoded.batch, custom_metadata={_BESIDE: _beside(place, decoded)})
            except OSError:
                intact = False
                _discard(files, temporary)  # frees its disk space
            yield place, decoded
        if intact and writer is not None:
            with contextlib.suppress(OSError):
                files.close()
                os.replace(temporary, path)
    finally:
        _discard(files, temporary)


def _discard(files: contextlib.ExitStack, path: str) -> None:
    with contextlib.suppress(OSError):
        files.close()
    with contextlib.suppress(OSError):
        os.remove(path)


def _beside(place: int, decoded: Decoded) -> str:
    """What a batch is read back with, beside its rows."""
    rejects = [reject.to_json() for reject in decoded.rejects]
    counts = decoded.read, decoded.consumed, decoded.distinct_numbers
    return json.dumps([place, rejects, *counts, list(decoded.digests.items())])


def read_cache(path: str) -> Iterator[InGroup]:
    """Reads the cached batches, which equal those that were written.

    Raises:
        FileNotFoundError: the group is not cached.
    """
    with pa.OSFile(path, "rb") as file, pa.ipc.open_file(file) as reader:
        for i in range(reader.num_record_batches):
            batch, metadata = reader.get_batch_with_custom_metadata(i)
            place, lines, read, consumed, numbers, digests = parse_json(metadata[_BESIDE])
            rejects = [Reject.from_json(line) for line in lines]
            counts = {name: (before, after) for name, (before, after) in numbers.items()}
            yield place, Decoded(batch, rejects, read, consumed, counts, dict(digests))
