"""Fragments: a local file per batch, with its framed records sorted by bucket. Shards are merged from their slices.

There is one file per batch, and not one per batch and bucket: with hundreds of buckets, opening files would cost more
than everything else.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_jobs.core.shuffle_plan import ShufflePlan, bucket_order, permutation
from beam_jobs.records import examples
from beam_jobs.records.encode import Encoded
from schemas import storage
from schemas.storage import folders


@dataclasses.dataclass(frozen=True)
class Fragment:
    """A batch's records on disk, in bucket order: frames in `path`, their lengths (int32) in `path`.index."""

    path: str
    place: tuple[int, int]  # file and offset of the batch's first row
    rows: np.ndarray  # int32 [buckets]
    sizes: np.ndarray  # int64 [buckets], in bytes


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """A written shard, at its temporary path, and its place among those of its split: of predictions, of all."""

    split: str
    index: Any
    path: str
    rows: int
    bytes: int
    crc32c: str


def write_fragment(encoded: Encoded, plan: ShufflePlan, folder: str) -> Fragment:
    """Writes the batch's records, sorted by bucket, to a file whose name is unique even if a bundle is retried."""
    buckets = plan.draw(encoded.splits, encoded.file, encoded.offset)
    order = bucket_order(buckets)
    lengths = examples.lengths(encoded.frames)[order].astype(np.int32)
    path = os.path.join(folder, f"fragment-{uuid.uuid4().hex}")
    _write(path, examples.joined(encoded.frames.take(pa.array(order))))
    _write(f"{path}.index", lengths.tobytes())
    rows = np.bincount(buckets, minlength=plan.total)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    row_ends = np.cumsum(rows)
    place = (encoded.file, encoded.offset)
    return Fragment(path, place, rows.astype(np.int32), ends[row_ends] - ends[row_ends - rows])


def _write(path: str, data: pa.Buffer | bytes) -> None:
    with storage.wrap_errors(path), open(path, "wb") as file:
        file.write(data)


@dataclasses.dataclass(frozen=True)
class FragmentTable:
    """The slices of all fragments: bucket c of a fragment is from column c to column c + 1."""

    paths: tuple[str, ...]
    rows: np.ndarray  # int64 [fragments, buckets + 1]
    sizes: np.ndarray  # int64 [fragments, buckets + 1], in bytes

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> FragmentTable:
        """The table, in the order of the input, so that shards do not depend on the order of execution."""
        fragments = sorted(fragments, key=lambda f: f.place)

        def starts(counts: list[np.ndarray]) -> np.ndarray:
            return np.pad(np.cumsum(np.array(counts, np.int64), axis=1), ((0, 0), (1, 0)))

        return cls(
            tuple(f.path for f in fragments), starts([f.rows for f in fragments]), starts([f.sizes for f in fragments])
        )

    def bucket_rows(self, buckets: range) -> int:
        """The number of rows in consecutive buckets."""
        return int((self.rows[:, buckets.stop] - self.rows[:, buckets.start]).sum())

    def bucket_sizes(self, buckets: range) -> list[int]:
        """The number of framed bytes in each of several consecutive buckets."""
        edges = self.sizes[:, buckets.start : buckets.stop + 1].sum(axis=0)
        return np.diff(edges).tolist()

    def read_bucket(self, bucket: int) -> tuple[np.ndarray, np.ndarray]:
        """All framed records of a bucket (uint8), and their lengths (int32)."""
        blob = np.empty(int((self.sizes[:, bucket + 1] - self.sizes[:, bucket]).sum()), np.uint8)
        lengths = np.empty(int((self.rows[:, bucket + 1] - self.rows[:, bucket]).sum()), np.int32)
        byte = row = 0
        for path, rows, sizes in zip(self.paths, self.rows, self.sizes, strict=True):
            count, size = int(rows[bucket + 1] - rows[bucket]), int(sizes[bucket + 1] - sizes[bucket])
            if count:
                _read_slice(path, int(sizes[bucket]), blob[byte : byte + size])
                _read_slice(f"{path}.index", 4 * int(rows[bucket]), lengths[row : row + count])
                byte, row = byte + size, row + count
        return blob, lengths


def _read_slice(path: str, start: int, into: np.ndarray) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        found = file.readinto(into.data)
    if found != into.nbytes:
        raise OSError(f"{path}: {found} bytes at {start}, expected {into.nbytes}: the fragment is truncated")


def permuted(blob: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> pa.Buffer | bytes:
    """The records of `blob` in the given order."""
    if not len(order):
        return b""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    records = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    )
    return examples.joined(records.take(pa.array(order)))


def merge_buckets(table: FragmentTable, buckets: range, *, seed: int) -> Iterator[pa.Buffer | bytes]:
    """A shard's framed bytes, bucket by bucket, each bucket permuted."""
    for bucket in buckets:
        blob, lengths = table.read_bucket(bucket)
        yield permuted(blob, lengths, permutation(seed, bucket, len(lengths)))


def write_shard(
    path: str,
    chunks: Iterator[pa.Buffer | bytes],
    *,
    split: str,
    index: int,
    rows: int,
    compression: str,
    durable: bool = True,
) -> WrittenShard:
    """Writes framed records as a shard, optionally gzip'd, and computes the file's CRC-32C.

    Args:
      path: the shard, local or gs://; it is uploaded when it is complete.
      chunks: the framed records.
      split: its split.
      index: its number within the split.
      rows: how many records there are.
      compression: 'none' or 'gzip'.
      durable: flush the file to disk.
    """
    crc = google_crc32c.Checksum()
    size = 0
    gzip = zlib.compressobj(wbits=31) if compression == "gzip" else None
    # Buffered, since an unbuffered write may be partial and only returns the count.
    with storage.wrap_errors(path), folders.written_locally(path) as local, open(local, "wb") as file:

        def put(data: pa.Buffer | bytes) -> None:
            nonlocal size
            crc.update(data)
            size += file.write(data)

        for chunk in chunks:
            put(gzip.compress(chunk) if gzip else chunk)
        if gzip:
            put(gzip.flush())
        file.flush()
        if durable:
            os.fsync(file.fileno())
    return WrittenShard(split, index, path, rows, size, crc.hexdigest().decode())
