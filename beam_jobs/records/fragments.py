"""The shuffle of a local job: each batch is written to one file, sorted by bucket, and shards are merged from slices.

A bucket is a random group of records (`beam_jobs.core.shuffle_plan`), and a fragment is the file of one batch. To write
a shard, the job reads the slice of each of the shard's buckets from every fragment, and permutes each bucket.

There is one file per batch, and not one per batch and bucket: with hundreds of buckets, opening files would take longer
than all other work. Rows of numbers are encoded only when they are merged, because tf.Examples, which repeat the names
of the features, take several times as many bytes. If buckets are small, the rows are encoded before, batch by batch.
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

ROWS_AT_ONCE = 8192  # the rows of a bucket that are encoded and written together


@dataclasses.dataclass(frozen=True)
class Fragment:
    """The file with the records of one batch, sorted by bucket.

    The file holds either rows that are not encoded yet (UnencodedRows), or frames. For frames, the file `path`.index
    holds the length of each frame (int32).

    Attributes:
      path: the file.
      place: the place of the batch's first row: the key of its input file, and its offset there.
      fields: the fields of the rows; None if the file holds frames.
      rows: the number of rows in each bucket, int32 `[buckets]`.
      sizes: the bytes of each bucket, int64 `[buckets]`, counted as frames, also if the file holds rows.
    """

    path: str
    place: tuple[int, int]
    fields: tuple[Field, ...] | None
    rows: np.ndarray
    sizes: np.ndarray


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """A shard that is written, but has no final name yet.

    Attributes:
      split: the split of its records; "predicted" for predictions, which have no splits.
      index: orders the shards of a split: a number, or for predictions the place of the shard's first record.
      path: the shard's temporary path.
      rows: the number of records.
      bytes: the size of the file.
      crc32c: the CRC-32C of the file, in hexadecimal digits.
      places_bytes: the size of the file `layout.places_of(path)`, which holds the places of the records; 0 if the
        records carry no places.
      places_sha256: the SHA-256 of that file of places; '' if the records carry no places.
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
    """Draws a bucket for each record of a batch, and writes the records, sorted by bucket, to a new file.

    The file's name is random, so that a bundle that the runner repeats does not overwrite an earlier file.

    Args:
      encoded: the batch.
      plan: the buckets.
      folder: a local folder, for the file.
    """
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
    # `ends[n]` is the total length of the first n records. The bytes of a bucket are the difference of `ends` between
    # the bucket's last and first record.
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
    """Writes bytes to a new local file."""
    with storage.wrap_errors(path), open(path, "wb") as file:
        file.write(data)


@dataclasses.dataclass(frozen=True)
class FragmentTable:
    """Says where each bucket's records are in each fragment.

    Attributes:
      paths: the file of each fragment.
      fields: the fields of each fragment's rows; None for a fragment of frames.
      rows: where each bucket begins in each fragment, counted in rows, int64 `[fragments, buckets + 1]`. The bucket
        `first + c` of fragment f goes from `rows[f, c]` to `rows[f, c + 1]`.
      sizes: the same positions, counted in bytes of frames, int64 `[fragments, buckets + 1]`.
      first: the number of the first bucket in the table.
    """

    paths: tuple[str, ...]
    fields: tuple[tuple[Field, ...] | None, ...]
    rows: np.ndarray
    sizes: np.ndarray
    first: int = 0

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> FragmentTable:
        """Makes the table, with the fragments in the order of the input.

        Threads and workers finish in any order. Sorting makes the shards the same in every run.
        """
        fragments = sorted(fragments, key=lambda f: f.place)

        def starts(counts: list[np.ndarray]) -> np.ndarray:
            """Turns counts `[fragments, buckets]` into positions `[fragments, buckets + 1]`, which begin with 0."""
            return np.pad(np.cumsum(np.array(counts, np.int64), axis=1), ((0, 0), (1, 0)))

        paths, fields = tuple(f.path for f in fragments), tuple(f.fields for f in fragments)
        return cls(paths, fields, starts([f.rows for f in fragments]), starts([f.sizes for f in fragments]))

    def of_buckets(self, buckets: range) -> FragmentTable:
        """Returns the part of the table with these consecutive buckets."""
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
        """Returns the size of each bucket in bytes of frames, summed over the fragments."""
        return np.diff(self.sizes.sum(axis=0)).tolist()

    def read_bucket(self, bucket: int) -> RecordBlock:
        """Reads all records of a bucket, from all fragments.

        Returns:
          UnencodedRows if all the bucket's fragments hold rows with the same fields, else frames.
        """
        bucket -= self.first
        parts = np.flatnonzero(self.rows[:, bucket + 1] > self.rows[:, bucket]).tolist()
        if len({self.fields[part] for part in parts}) > 1:
            return pa.concat_arrays([examples.frames(self._read([part], bucket)) for part in parts])
        return self._read(parts, bucket)

    def _read(self, parts: list[int], bucket: int) -> RecordBlock:
        """Reads a bucket from the fragments `parts`, which must all have the same fields. `bucket`: the column here."""
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
        """Reads one bucket's slice of each fragment into `into`, one after the other.

        Args:
          parts: the indices of the fragments.
          bucket: the bucket's column in `starts`.
          starts: where the buckets begin in each file, counted in elements of `into`, `[fragments, buckets + 1]`.
          suffix: added to the path of each fragment; '' for the records.
          into: the array to fill; its size is the sum of the slices.
        """
        at = 0
        for part in parts:
            start, stop = starts[part, bucket : bucket + 2].tolist()
            _read_slice(f"{self.paths[part]}{suffix}", start * into.itemsize, into[at : at + stop - start])
            at += stop - start


def _read_slice(path: str, start: int, into: np.ndarray) -> None:
    """Fills `into` with the bytes of a file from byte `start` on. Raises OSError if the file ends before."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        byte_count = file.readinto(into.view(np.uint8).data)
    if byte_count != into.nbytes:
        raise OSError(f"{path}: {byte_count} bytes at {start}, expected {into.nbytes}: the fragment is truncated")


def merge_buckets(table: FragmentTable, *, seed: int) -> Iterator[RecordBlock]:
    """Yields a shard's records, up to ROWS_AT_ONCE at a time. The buckets come in order, each bucket permuted."""
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
    """Writes records as a shard. If the records carry their places, writes the places to `layout.places_of(path)`.

    Args:
      path: the shard's path, local or gs://. A shard in a bucket is written to local disk first, and then uploaded.
      chunks: the shard's records, some at a time.
      split: the split of the records.
      index: the shard's number within its split.
      compression: 'none' or 'gzip'.
    """
    crc = google_crc32c.Checksum()
    size = rows = 0
    places = PlacesFile()
    gzip = zlib.compressobj(wbits=31) if compression == "gzip" else None
    # The file is buffered, because an unbuffered write may write only a part of the data.
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
        if storage.is_local(path):  # else the local file is a copy that is uploaded, and need not survive a crash
            os.fsync(file.fileno())
    beside = places.write(layout.places_of(path)) if places.rows else (0, "")
    return WrittenShard(split, index, path, rows, size, crc.hexdigest().decode(), *beside)
