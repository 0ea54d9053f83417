"""Shuffles records on a cluster, where a bucket may be larger than a worker's memory.

A piece is a group of records of one bucket that is sent together. `ByValue` and `ByFile` carry pieces through the
runner's shuffle; `ShuffledGroup` permutes the records of a bucket, through local files if they exceed the memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from beam_jobs.records import examples
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.storage import folders

BUDGET = 12 << 20  # bytes of records that a group holds in memory; permuting them takes twice as much in addition
FANOUT = 32  # the number of files that a group larger than BUDGET is divided into
CHUNK = 1 << 20  # bytes of records that are yielded at once


@dataclasses.dataclass(frozen=True)
class Piece:
    """Framed records as one byte string.

    Attributes:
        lengths: the length of each frame in bytes, int32 `[records]`.
        data: the concatenated frames.
    """

    lengths: np.ndarray
    data: bytes

    @property
    def records(self) -> pa.LargeBinaryArray:
        """The records as an Arrow array, which shares the memory of `data`."""
        return examples.of_lengths(self.lengths, self.data)


def spans(lengths: np.ndarray, size: int) -> Iterator[tuple[int, int, int]]:
    """Divides consecutive records into runs of at most `size` bytes. A larger record is a run by itself.

    Args:
        lengths: the length of each record in bytes.
        size: the most bytes of a run.

    Yields:
        The index of the run's first record, the index after its last record, and the run's bytes.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    start = before = 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
        yield start, stop, int(ends[stop - 1]) - before
        start, before = stop, int(ends[stop - 1])


def pieces_by_bucket(frames: pa.LargeBinaryArray, buckets: np.ndarray) -> Iterator[tuple[int, Piece]]:
    """Groups records by their buckets. Yields each bucket that occurs, in ascending order, with a piece of its records.

    Args:
        frames: the framed records, large_binary `[n]`.
        buckets: the bucket of each record, int `[n]`.
    """
    # Sorts by bucket; `bounds` are the indices where the bucket changes, with both ends.
    order = np.argsort(buckets, kind="stable")
    ordered, taken = buckets[order], frames.take(pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(bounds):
        if stop > start:
            records = taken.slice(start, stop - start)
            lengths = examples.lengths(records).astype(np.int32)
            yield int(ordered[start]), Piece(lengths, bytes(examples.joined(records)))


class ShuffledGroup:
    """Puts the records of one group in random order: `read` takes the records in, then `chunks` yields them.

    A group of at most `budget` bytes stays in memory. The records of a larger group are spread at random over FANOUT
    local files. Then each file is shuffled in the same way, as a group of its own, and the files are yielded one after
    the other. Use as a context manager: leaving the block removes the files.

    Args:
        seed: the seed of the random order; the same pieces in the same order give the same result.
        budget: the bytes of records to hold in memory.
        chunk: the bytes of records that `chunks` yields at once.
    """

    def __init__(self, seed: tuple[int, ...], *, budget: int = BUDGET, chunk: int = CHUNK) -> None:
        self._seed, self._budget, self._chunk = seed, budget, max(1, chunk)
        self._held: list[Piece] = []
        self._files: _Files | None = None
        self._folder = contextlib.ExitStack()
        self.rows = self.bytes = 0

    def __enter__(self) -> ShuffledGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    def read(self, pieces: Iterable[Piece]) -> None:
        """Takes in all records. Iterates over `pieces` only once."""
        rng = np.random.default_rng([*self._seed, 0])
        waiting = 0
        for piece in pieces:
            self.rows += len(piece.lengths)
            self.bytes += len(piece.data)
            self._held.append(piece)
            waiting += len(piece.data)
            if waiting > self._budget and self.rows > 1:
                self._spill(rng)
                waiting = 0
        if self._files is not None:
            self._spill(rng)
            self._files.close()

    def _spill(self, rng: np.random.Generator) -> None:
        """Writes the records that are in memory to the files, each record to a random one."""
        if self._files is None:
            self._files = _Files(self._folder.enter_context(tempfile.TemporaryDirectory(prefix="millrace-")))
        pieces, self._held = self._held, []
        if pieces:
            frames = pa.concat_arrays([piece.records for piece in pieces])
            for number, piece in pieces_by_bucket(frames, rng.integers(0, FANOUT, len(frames))):
                self._files.add(number, piece)

    def chunks(self) -> Iterator[pa.LargeBinaryArray]:
        """Yields the framed records in random order, about `chunk` bytes at a time."""
        if self._files is None:
            pieces, self._held = self._held, []
            yield from self._permuted(pieces)
            return
        for number in range(FANOUT):
            with ShuffledGroup((*self._seed, 1 + number), budget=self._budget, chunk=self._chunk) as part:
                part.read(self._files.pieces(number, self._chunk))
                yield from part.chunks()

    def _permuted(self, pieces: list[Piece]) -> Iterator[pa.LargeBinaryArray]:
        """Yields the records of pieces in memory in random order. Empties the list, to free the memory."""
        if not pieces:
            return
        frames = pa.concat_arrays([piece.records for piece in pieces])
        pieces.clear()
        order = np.random.default_rng([*self._seed, 0]).permutation(len(frames))
        for start, stop, _ in spans(examples.lengths(frames)[order], self._chunk):
            yield frames.take(pa.array(order[start:stop]))


class _Files:
    """FANOUT local files of records. A second file for each holds the records' lengths. First written, then read."""

    def __init__(self, folder: str) -> None:
        self._paths = [os.path.join(folder, f"{number}") for number in range(FANOUT)]
        self._open = contextlib.ExitStack()
        self._data = [self._create(path) for path in self._paths]
        self._lengths = [self._create(f"{path}.lengths") for path in self._paths]

    def _create(self, path: str) -> BinaryIO:
        return self._open.enter_context(open(path, "wb"))

    def add(self, number: int, piece: Piece) -> None:
        self._data[number].write(piece.data)
        self._lengths[number].write(piece.lengths.tobytes())

    def close(self) -> None:
        """Closes the files, after which `pieces` may read them."""
        self._open.close()

    def pieces(self, number: int, size: int) -> Iterator[Piece]:
        """Yields the records of file `number`, in pieces of at most `size` bytes, and then removes the file.

        A record larger than `size` is a piece by itself.
        """
        path = self._paths[number]
        lengths = np.fromfile(f"{path}.lengths", np.int32)
        with open(path, "rb") as file:
            for start, stop, length in spans(lengths, size):
                yield Piece(lengths[start:stop], file.read(length))
        os.remove(path)


@dataclasses.dataclass(frozen=True)
class ByValue:
    """Sends the records themselves through the runner's shuffle, each piece as (lengths, framed records).

    Attributes:
        sent: the type of the pairs that are shuffled, (bucket, sent piece). Beam chooses the coder by this type.
        collect: the bytes of records that a bundle collects before it sends them.
    """

    sent: ClassVar[Any] = tuple[int, tuple[bytes, bytes]]
    collect: ClassVar[int] = 32 << 20

    def send(self, pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Any]]:
        """Turns pairs (bucket, piece) into pairs (bucket, sent piece), which the runner can encode."""
        for bucket, piece in pieces:
            yield bucket, (piece.lengths.tobytes(), piece.data)

    def receive(self, sent: Iterable[Any]) -> Iterator[Piece]:
        """Turns the sent pieces of a bucket back into pieces. Iterates over `sent` only once."""
        for lengths, data in sent:
            yield Piece(np.frombuffer(lengths, np.int32), data)


@dataclasses.dataclass(frozen=True)
class ByFile:
    """Writes the records to shared files, and sends only their places through the runner's shuffle.

    A sent piece is (file, offset, number of records, bytes of the records). Each call of `send` writes all its pieces
    to one file: for each piece, the lengths of the records and then the records. The file's name is random, so that a
    bundle that the runner repeats does not overwrite an earlier file. `receive` changes no file, so it can be repeated.
    `sent` and `collect` are as in `ByValue`.

    Args:
        folder: the folder for the files, on storage that all workers share.
    """

    folder: str
    sent: ClassVar[Any] = tuple[int, tuple[str, int, int, int]]
    collect: ClassVar[int] = 8 << 20

    def send(self, pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Any]]:
        path = layout.join(self.folder, f"records-{uuid.uuid4().hex}")
        places = []
        with storage.wrap_errors(path), folders.written_locally(path) as local, open(local, "wb") as file:
            for bucket, piece in pieces:
                places.append((bucket, (path, file.tell(), len(piece.lengths), len(piece.data))))
                file.write(piece.lengths.tobytes())
                file.write(piece.data)
        yield from places  # only now, when the file is complete and has its name

    def receive(self, sent: Iterable[Any]) -> Iterator[Piece]:
        for path, start, rows, size in sent:
            index = 4 * rows
            with storage.wrap_errors(path), storage.open_read(path) as file:
                file.seek(start)
                data = file.read(index + size)
            if len(data) != index + size:
                expected = f"{index + size:,} bytes from {start:,} on"
                raise MillraceError(f"{path}: expected {expected}, found {len(data):,}: the file is truncated")
            yield Piece(np.frombuffer(data, np.int32, rows), data[index:])
