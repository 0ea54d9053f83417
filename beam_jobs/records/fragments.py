"""Fragments: a local file per batch, with its records sorted by bucket. Shards are merged from their slices.

There is one file per batch, and not one per batch and bucket: with hundreds of buckets, opening files would cost more
than everything else. Rows of numbers are encoded only when they are merged, unless buckets are small: tf.Examples, with
the names of their features, take several times as many bytes.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_jobs.core.shuffle_plan import ShufflePlan, bucket_order, permutation
from beam_jobs.records import examples
from beam_jobs.records.examples import Field, RecordBlock, UnencodedRows, row_type
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.provenance import PlacesFile
from schemas.storage import folders

if TYPE_CHECKING:
    from beam_jobs.records.encode import Encoded

ROWS_AT_ONCE = 8192  # of a bucket, encoded and written together


@dataclasses.dataclass(frozen=True)
class Fragment:
    """A batch's records on disk, in bucket order: rows in `path`, or frames, and their lengths in `path`.index (int32).

    Attributes:
      path: the file.
      place: the key of the file, and the offset, of the batch's first row.
      fields: of rows; None for frames.
      rows: int32 `[buckets]`.
      sizes: int64 `[buckets]`, in bytes of frames.
    """

    path: str
    place: tuple[int, int]
    fields: tuple[Field, ...] | None
    rows: np.ndarray
    sizes: np.ndarray


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """A written shard, at its temporary path, and its place among those of its split: of predictions, of all.

    The file of its records' places is beside it (`layout.places_of`), if they have places: its size, and its SHA-256.
    """

    split: str
    index: Any
    path: str
    rows: int
    bytes: int
    crc32c: str
    places_bytes: int = 0
    places_sha256: str = ""


def write_fragment(encoded: Encoded, plan: ShufflePlan, folder: str) -> Fragment:
    """Writes the batch's records, sorted by bucket, to a file whose name is unique even if a bundle is retried."""
    buckets = plan.draw(encoded.splits, encoded.file, encoded.offset)
    order = bucket_order(buckets)
    records = examples.taken(examples.frames(encoded.records) if plan.small else encoded.records, order)
    lengths = examples.lengths(records)
    path = os.path.join(folder, f"fragment-{uuid.uuid4().hex}")
    if isinstance(records, UnencodedRows):
        _write(path, records.data.view(np.uint8).data)
    else:
        _write(path, examples.joined(records))
        _write(f"{path}.index", lengths.astype(np.int32).tobytes())
    rows = np.bincount(buckets, minlength=plan.total)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    row_ends = np.cumsum(rows)
    return Fragment(
        path,
        (encoded.file, encoded.offset),
        records.fields if isinstance(records, UnencodedRows) else None,
        rows.astype(np.int32),
        ends[row_ends] - ends[row_ends - rows],
    )


def _write(path: str, data: pa.Buffer | memoryview | bytes) -> None:
    with storage.wrap_errors(path), open(path, "wb") as file:
        file.write(data)


@dataclasses.dataclass(frozen=True)
class FragmentTable:
    """The slices of all fragments: bucket `first + c` of a fragment is from column c to column c + 1."""

    paths: tuple[str, ...]
    fields: tuple[tuple[Field, ...] | None, ...]
    rows: np.ndarray  # int64 [fragments, buckets + 1]
    sizes: np.ndarray  # int64 [fragments, buckets + 1], in bytes of frames
    first: int = 0

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> FragmentTable:
        """Makes the table in the order of the input, so that shards do not depend on the order of execution."""
        fragments = sorted(fragments, key=lambda f: f.place)

        def starts(counts: list[np.ndarray]) -> np.ndarray:
            return np.pad(np.cumsum(np.array(counts, np.int64), axis=1), ((0, 0), (1, 0)))

        paths, fields = tuple(f.path for f in fragments), tuple(f.fields for f in fragments)
        return cls(paths, fields, starts([f.rows for f in fragments]), starts([f.sizes for f in fragments]))

    def of_buckets(self, buckets: range) -> FragmentTable:
        """Returns the slices of consecutive buckets."""
        columns = slice(buckets.start - self.first, buckets.stop - self.first + 1)
        return FragmentTable(self.paths, self.fields, self.rows[:, columns], self.sizes[:, columns], buckets.start)

    @property
    def buckets(self) -> range:
        """The numbers of the buckets."""
        return range(self.first, self.first + self.rows.shape[1] - 1)

    @property
    def total(self) -> int:
        """The number of rows in all buckets."""
        return int((self.rows[:, -1] - self.rows[:, 0]).sum())

    def bucket_sizes(self) -> list[int]:
        """Returns the number of framed bytes in each bucket."""
        return np.diff(self.sizes.sum(axis=0)).tolist()

    def read_bucket(self, bucket: int) -> RecordBlock:
        """Reads all records of a bucket: rows if all its fragments hold rows with the same features, else frames."""
        bucket -= self.first
        parts = np.flatnonzero(self.rows[:, bucket + 1] > self.rows[:, bucket]).tolist()
        if len({self.fields[part] for part in parts}) > 1:
            return pa.concat_arrays([examples.frames(self._read([part], bucket)) for part in parts])
        return self._read(parts, bucket)

    def _read(self, parts: list[int], bucket: int) -> RecordBlock:
        """The records that some fragments, all of the same features, have in a bucket."""
        fields = self.fields[parts[0]] if parts else None
        if fields is not None:
            rows = np.empty(int(np.diff(self.rows[parts, bucket : bucket + 2]).sum()), row_type(fields))
            self._read_slices(parts, bucket, self.rows, "", rows)
            return UnencodedRows(fields, rows)
        blob = np.empty(int(np.diff(self.sizes[parts, bucket : bucket + 2]).sum()), np.uint8)
        lengths = np.empty(int(np.diff(self.rows[parts, bucket : bucket + 2]).sum()), np.int32)
        self._read_slices(parts, bucket, self.sizes, "", blob)
        self._read_slices(parts, bucket, self.rows, ".index", lengths)
        return examples.of_lengths(lengths, blob)

    def _read_slices(self, parts: list[int], bucket: int, starts: np.ndarray, suffix: str, into: np.ndarray) -> None:
        """Reads slices one after the other. `starts`: where they begin, in elements of `into`."""
        at = 0
        for part in parts:
            start, stop = starts[part, bucket : bucket + 2].tolist()
            _read_slice(f"{self.paths[part]}{suffix}", start * into.itemsize, into[at : at + stop - start])
            at += stop - start


def _read_slice(path: str, start: int, into: np.ndarray) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        byte_count = file.readinto(into.view(np.uint8).data)
    if byte_count != into.nbytes:
        raise OSError(f"{path}: {byte_count} bytes at {start}, expected {into.nbytes}: the fragment is truncated")


def merge_buckets(table: FragmentTable, *, seed: int) -> Iterator[RecordBlock]:
    """Yields a shard's records, bucket by bucket, each bucket permuted."""
    for bucket in table.buckets:
        records = table.read_bucket(bucket)
        order = permutation(seed, bucket, len(records))
        for start in range(0, len(order), ROWS_AT_ONCE):
            yield examples.taken(records, order[start : start + ROWS_AT_ONCE])


def write_shard(
    path: str,
    chunks: Iterator[RecordBlock],
    *,
    split: str,
    index: int,
    compression: str,
) -> WrittenShard:
    """Writes records as a shard, optionally gzip'd, and their places to a file beside it, if they have places.

    Args:
      path: the shard, local or gs://; it is uploaded when it is complete.
      chunks: the records, some at a time.
      split: its split.
      index: its number within the split.
      compression: 'none' or 'gzip'.
    """
    crc = google_crc32c.Checksum()
    size = rows = 0
    places = PlacesFile()
    gzip = zlib.compressobj(wbits=31) if compression == "gzip" else None
    # Buffered, since an unbuffered write may be partial and only returns the count.
    with storage.wrap_errors(path), folders.written_locally(path) as local, open(local, "wb") as file:

        def put(data: pa.Buffer | bytes) -> None:
            nonlocal size
            crc.update(data)
            size += file.write(data)

        for records in chunks:
            frames, places_of_chunk = examples.apart(records)
            data = examples.joined(frames)
            put(gzip.compress(data) if gzip else data)
            rows += len(frames)
            if places_of_chunk is not None:
                places.add(places_of_chunk)
        if gzip:
            put(gzip.flush())
        file.flush()
        if storage.is_local(path):  # else the file is a copy
            os.fsync(file.fileno())
    beside = places.write(layout.places_of(path)) if places.rows else (0, "")
    return WrittenShard(split, index, path, rows, size, crc.hexdigest().decode(), *beside)
