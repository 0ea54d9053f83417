"""Groups of ranges that are read together, and the cache of what was decoded of them. Neither Beam nor TensorFlow.

Small files are read together: a group of ranges is one element of the pipeline, since each element, and each batch,
costs milliseconds in Beam and in the transform's graph, which is more than it takes to read a file of a few rows.

What is decoded of a group before its second read is cached on local disk, as an Arrow file with LZ4. Writing and
reading it takes a seventh of the time of decoding the CSV, and half the CSV's disk space. It is optional: what is not
cached is decoded again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from schemas.formats import row_format
from schemas.rejects import Reject
from schemas.rows import BATCH_BYTES, Decoded, RowRange, batch_bytes
from schemas.spec.table import OFFSET, SPLIT, Schema, raw_columns
from schemas.storage import file_key
from schemas.storage.json_files import parse_json

if TYPE_CHECKING:
    from schemas.profile.profiles import Profiles

GROUP_BYTES = 1 << 20  # of a group of several ranges
GROUP_RANGES = 256
JOINED_ROWS = 1024
UNIT_BYTES = 64 << 20  # of a unit: merging the summaries of a thousand columns takes a tenth of a second

Group = tuple[RowRange, ...]
Unit = tuple[Group, ...]  # what profiles are collected of, before they are merged
Place = tuple[int, int]  # of a record: its file's key, and its offset
InGroup = tuple[int, Decoded]  # a batch, with the place of its range in the group
Digested = list[tuple[int, Mapping[int, str]]]  # the place of a range in the group, and the digests of its blocks


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


def decode(group: Group, schema: Schema, digested: Digested | None) -> Iterator[InGroup]:
    """Decodes the records of a group.

    Args:
      group: its ranges.
      schema: the schema of their files.
      digested: receives the digests of the files' blocks, range by range; None: none are taken.

    Raises:
      MillraceError: a file cannot be read, or has changed.
    """

    def take(place: int, blocks: Mapping[int, str]) -> None:
        assert digested is not None  # noqa: S101 - else it is not called
        digested.append((place, blocks))

    form, size = row_format(schema), batch_bytes(schema)
    for place, part in enumerate(group):
        blocks = None if digested is None else functools.partial(take, place)
        for decoded in form.read_range(part, schema, with_split=True, digests=blocks, batch_bytes=size):
            yield place, decoded


def observe(
    unit: Unit, schema: Schema, folder: str, without: Mapping[int, Sequence[int]], into: Profiles
) -> Iterator[None]:
    """Collects the profiles of a unit, as the pipeline does of the same rows.

    Args:
      unit: the groups; those that are not cached are decoded.
      schema: the schema of their files.
      folder: the folder of the cache.
      without: the offsets of rows that are left out, by the key of their file.
      into: what is added to.

    Yields:
      After each batch.

    Raises:
      MillraceError: a file cannot be read, or has changed.
    """
    names = [column.name for column in raw_columns(schema)]
    for group in unit:
        keys = np.array([file_key(part.file.path) for part in group], np.int64)
        path = cache_path(folder, group)
        decoded = read_cache(path) if os.path.exists(path) else decode(group, schema, None)
        for rows, parts in joined(decoded, group):
            files, offsets = keys[parts], np.asarray(rows.column(OFFSET))
            accepted = np.ones(rows.num_rows, bool)
            for key, places in without.items():
                accepted &= (files != key) | ~np.isin(offsets, places)
            selected = rows if accepted.all() else rows.filter(pa.array(accepted))
            if selected.num_rows:
                splits = np.asarray(selected.column(SPLIT))
                into.add(selected.select(names), splits, files[accepted], offsets[accepted])
            yield


_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_PART, _READ, _CONSUMED, _REJECTS = b"part", b"read", b"consumed", b"rejects"  # metadata keys of a batch
_DISTINCT = b"distinct_numbers"
_DIGESTED = b"digested"  # of the last one, which has no rows


def cache_path(folder: str, group: Group) -> str:
    """The cache file of a group of ranges."""
    name = "\0".join(f"{part.file.path}\0{part.start}\0{part.end}" for part in group).encode()
    return os.path.join(folder, f"decoded-{hashlib.blake2b(name, digest_size=16).hexdigest()}.arrow")


def write_through(
    path: str, batches: Iterator[InGroup], digested: Digested | None = None
) -> Generator[InGroup, None, None]:
    """Yields `batches` and writes them to a cache file, which appears when it is complete; a full disk disables it.

    Args:
      path: the cache file.
      batches: a group, decoded.
      digested: what is in it when `batches` end is written, too.
    """
    temporary = f"{path}.{uuid.uuid4().hex}"
    writer = _Writer(temporary)
    try:
        for part, decoded in batches:
            writer.write(part, decoded)
            yield part, decoded
        writer.end(digested or [])
        if writer.close():
            os.replace(temporary, path)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            os.remove(temporary)


def read_cache(path: str, digested: Digested | None = None) -> Iterator[InGroup]:
    """Reads the cached batches, which equal those that were written.

    Args:
      path: the cache file.
      digested: receives the digests that were written.

    Raises:
        FileNotFoundError: the group is not cached.
    """
    with pa.OSFile(path, "rb") as file, pa.ipc.open_file(file) as reader:
        for i in range(reader.num_record_batches):
            batch, metadata = reader.get_batch_with_custom_metadata(i)
            if _DIGESTED in metadata:
                of_places = parse_json(metadata[_DIGESTED])
                if digested is not None:
                    digested += [
                        (place, {int(n): digest for n, digest in blocks.items()}) for place, blocks in of_places
                    ]
                continue
            rejects = [Reject.from_json(line) for line in parse_json(metadata[_REJECTS])]
            numbers = {name: (before, after) for name, (before, after) in parse_json(metadata[_DISTINCT]).items()}
            decoded = Decoded(batch, rejects, int(metadata[_READ]), int(metadata[_CONSUMED]), numbers)
            yield int(metadata[_PART]), decoded


class _Writer:
    """Writes an Arrow file of batches; opens it with the first batch, and gives up silently if the disk refuses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = contextlib.ExitStack()
        self._stream: pa.ipc.RecordBatchFileWriter | None = None
        self._failed = False

    def write(self, part: int, decoded: Decoded) -> None:
        rejects = json.dumps([reject.to_json() for reject in decoded.rejects])
        counts = {_READ: str(decoded.read), _CONSUMED: str(decoded.consumed)}
        counts[_DISTINCT] = json.dumps(decoded.distinct_numbers)
        self._write(decoded.batch, {_PART: str(part), **counts, _REJECTS: rejects})

    def end(self, digested: Digested) -> None:
        if self._stream is not None:
            self._write(self._none, {_DIGESTED: json.dumps(digested)})

    def _write(self, batch: pa.RecordBatch, metadata: dict[bytes, str]) -> None:
        if self._failed:
            return
        try:
            if self._stream is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                file = self._files.enter_context(pa.OSFile(self._path, "wb"))
                self._stream = pa.ipc.new_file(file, batch.schema, options=_OPTIONS)
                self._files.enter_context(self._stream)
                self._none = batch.slice(0, 0)
            self._stream.write_batch(batch, custom_metadata=metadata)
        except OSError:
            self._failed = True
            self.close()
            with contextlib.suppress(OSError):
                os.remove(self._path)  # frees its disk space

    def close(self) -> bool:
        """Closes the file; returns whether it contains all batches."""
        try:
            self._files.close()
        except OSError:
            self._failed = True
        return self._stream is not None and not self._failed
