"""Fragments: a batch's framed records in one local file, cell after cell, and shards merged from their slices.

One file per batch, and not one per batch and cell: with hundreds of cells the opening of files would cost more than all
the rest.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_jobs.core.shuffle_plan import Deal, in_cells, permutation
from beam_jobs.output import tfrecord_frames
from beam_jobs.output.encode import Encoded
from schemas import storage


@dataclasses.dataclass(frozen=True)
class Fragment:
    """A batch's records on disk. `path` holds them framed, `path`.index their framed lengths (int32), in cell order."""

    path: str
    place: tuple[int, int]  # of the batch's first row: file, offset
    rows: np.ndarray  # int32 [cells]
    sizes: np.ndarray  # int64 [cells]: bytes


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """A shard as it was written, under its temporary path."""

    split: str
    index: int
    path: str
    rows: int
    bytes: int
    crc32c: str


def write_fragment(encoded: Encoded, deal: Deal, folder: str) -> Fragment:
    """Deals the batch's records to cells and writes them, under a name that no retried bundle meets again."""
    cells = deal.draw(encoded.splits, encoded.file, encoded.offset)
    order = in_cells(cells)
    lengths = tfrecord_frames.lengths(encoded.frames)[order].astype(np.int32)
    path = os.path.join(folder, f"fragment-{uuid.uuid4().hex}")
    _write(path, tfrecord_frames.joined(encoded.frames.take(pa.array(order))))
    _write(f"{path}.index", lengths.tobytes())
    rows = np.bincount(cells, minlength=deal.total)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    row_ends = np.cumsum(rows)
    place = (encoded.file, encoded.offset)
    return Fragment(path, place, rows.astype(np.int32), ends[row_ends] - ends[row_ends - rows])


def _write(path: str, data: pa.Buffer | bytes) -> None:
    with storage.wrap_errors(path), open(path, "wb") as file:
        file.write(data)


@dataclasses.dataclass(frozen=True)
class FragmentTable:
    """Where each cell's slice lies in each fragment: slice c is from column c to column c + 1."""

    paths: tuple[str, ...]
    rows: np.ndarray  # int64 [fragments, cells + 1]
    sizes: np.ndarray  # int64 [fragments, cells + 1]: bytes

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> FragmentTable:
        """The table, in the order of the input, so that a seed gives the same shards whatever order work is done in."""
        fragments = sorted(fragments, key=lambda f: f.place)

        def starts(counts: list[np.ndarray]) -> np.ndarray:
            return np.pad(np.cumsum(np.array(counts, np.int64), axis=1), ((0, 0), (1, 0)))

        return cls(
            tuple(f.path for f in fragments), starts([f.rows for f in fragments]), starts([f.sizes for f in fragments])
        )

    def cell_rows(self, cells: range) -> int:
        """How many rows consecutive cells hold."""
        return int((self.rows[:, cells.stop] - self.rows[:, cells.start]).sum())

    def cell_sizes(self, cells: range) -> list[int]:
        """How many framed bytes each of consecutive cells holds."""
        edges = self.sizes[:, cells.start : cells.stop + 1].sum(axis=0)
        return np.diff(edges).tolist()

    def read_cell(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """All framed records of a cell (uint8), and their framed lengths (int32)."""
        blob = np.empty(int((self.sizes[:, cell + 1] - self.sizes[:, cell]).sum()), np.uint8)
        lengths = np.empty(int((self.rows[:, cell + 1] - self.rows[:, cell]).sum()), np.int32)
        byte = row = 0
        for path, rows, sizes in zip(self.paths, self.rows, self.sizes, strict=True):
            count, size = int(rows[cell + 1] - rows[cell]), int(sizes[cell + 1] - sizes[cell])
            if count:
                _read_slice(path, int(sizes[cell]), blob[byte : byte + size])
                _read_slice(f"{path}.index", 4 * int(rows[cell]), lengths[row : row + count])
                byte, row = byte + size, row + count
        return blob, lengths


def _read_slice(path: str, start: int, into: np.ndarray) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        found = file.readinto(into.data)
    if found != into.nbytes:
        raise OSError(f"{path}: {found} bytes at {start}, expected {into.nbytes}: the fragment was cut")


def permuted(blob: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> pa.Buffer | bytes:
    """The records of `blob` in the given order, gathered in C++."""
    if not len(order):
        return b""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    records = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    )
    return tfrecord_frames.joined(records.take(pa.array(order)))


def merge_cells(table: FragmentTable, cells: range, *, seed: int) -> Iterator[pa.Buffer | bytes]:
    """A shard's framed bytes, cell by cell, each shuffled whole."""
    for cell in cells:
        blob, lengths = table.read_cell(cell)
        yield permuted(blob, lengths, permutation(seed, cell, len(lengths)))


def write_shard(
    path: str, chunks: Iterator[pa.Buffer | bytes], *, split: str, index: int, rows: int, compression: str
) -> WrittenShard:
    """Writes framed records as a shard, gzip'd where asked, and takes the file's CRC-32C on the way."""
    crc = google_crc32c.Checksum()
    size = 0
    gzip = zlib.compressobj(wbits=31) if compression == "gzip" else None
    # Buffered, since an unbuffered file may take a part of the data and say so in a number alone.
    with storage.wrap_errors(path), open(path, "wb") as file:

        def put(data: pa.Buffer | bytes) -> None:
            nonlocal size
            crc.update(data)
            size += file.write(data)

        for chunk in chunks:
            put(gzip.compress(chunk) if gzip else chunk)
        if gzip:
            put(gzip.flush())
        file.flush()
        os.fsync(file.fileno())
    return WrittenShard(split, index, path, rows, size, crc.hexdigest().decode())
