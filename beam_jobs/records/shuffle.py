"""Shuffles records on a cluster: buckets may be larger than memory, and pieces larger than Beam takes."""

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

BUDGET = 12 << 20  # bytes of records that are held in memory; permuting them takes twice as much again
FANOUT = 32
CHUNK = 1 << 20  # bytes that are yielded at once


@dataclasses.dataclass(frozen=True)
class Piece:
    """Framed records, concatenated, and the length of each (int32)."""

    lengths: np.ndarray
    data: bytes

    @property
    def records(self) -> pa.LargeBinaryArray:
        """The records as an array that shares these bytes."""
        return examples.of_lengths(self.lengths, self.data)


def spans(lengths: np.ndarray, size: int) -> Iterator[tuple[int, int, int]]:
    """Cuts consecutive records into runs of at most `size` bytes, or of one: where each begins, ends, and its bytes."""
    ends = np.cumsum(lengths, dtype=np.int64)
    start = before = 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
        yield start, stop, int(ends[stop - 1]) - before
        start, before = stop, int(ends[stop - 1])


def pieces_by_bucket(frames: pa.LargeBinaryArray, buckets: np.ndarray) -> Iterator[tuple[int, Piece]]:
    """Yields the records of each bucket that occurs in `buckets`, in ascending order of the buckets."""
    order = np.argsort(buckets, kind="stable")
    ordered, taken = buckets[order], frames.take(pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(bounds):
        if stop > start:
            records = taken.slice(start, stop - start)
            lengths = examples.lengths(records).astype(np.int32)
            yield int(ordered[start]), Piece(lengths, bytes(examples.joined(records)))


class ShuffledGroup:
    """The records of one group: taken in by `read`, then yielded in random order by `chunks`. Use as a context manager.

    Args:
        seed: of the random order; the same pieces in the same order give the same result.
        budget: bytes of records in memory.
        chunk: bytes that `chunks` yields at once.
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
        """Takes in all records; goes through `pieces` once."""
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
        """Sends the records that are held to the files."""
        if self._files is None:
            self._files = _Files(self._folder.enter_context(tempfile.TemporaryDirectory(prefix="millrace-")))
        pieces, self._held = self._held, []
        if pieces:
            frames = pa.concat_arrays([piece.records for piece in pieces])
            for number, piece in pieces_by_bucket(frames, rng.integers(0, FANOUT, len(frames))):
                self._files.add(number, piece)

    def chunks(self) -> Iterator[pa.LargeBinaryArray]:
        """Yields the framed records in random order, some at a time."""
        if self._files is None:
            pieces, self._held = self._held, []
            yield from self._permuted(pieces)
            return
        for number in range(FANOUT):
            with ShuffledGroup((*self._seed, 1 + number), budget=self._budget, chunk=self._chunk) as part:
                part.read(self._files.pieces(number, self._chunk))
                yield from part.chunks()

    def _permuted(self, pieces: list[Piece]) -> Iterator[pa.LargeBinaryArray]:
        if not pieces:
            return
        frames = pa.concat_arrays([piece.records for piece in pieces])
        pieces.clear()
        order = np.random.default_rng([*self._seed, 0]).permutation(len(frames))
        for start, stop, _ in spans(examples.lengths(frames)[order], self._chunk):
            yield frames.take(pa.array(order[start:stop]))


class _Files:
    """FANOUT local files of records, each with a file of lengths; written in turn, then read."""

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
        """Ends the writing."""
        self._open.close()

    def pieces(self, number: int, size: int) -> Iterator[Piece]:
        """Yields the records of a file, in pieces of about `size` bytes; the file is removed at the end."""
        path = self._paths[number]
        lengths = np.fromfile(f"{path}.lengths", np.int32)
        with open(path, "rb") as file:
            for start, stop, length in spans(lengths, size):
                yield Piece(lengths[start:stop], file.read(length))
        os.remove(path)


@dataclasses.dataclass(frozen=True)
class ByValue:
    """The runner carries the records: (lengths, framed records).

    Attributes:
        sent: the type of (bucket, what is shuffled for a piece), by which Beam chooses the coder.
        collect: bytes of records that a bundle collects before it sends them.
    """

    sent: ClassVar[Any] = tuple[int, tuple[bytes, bytes]]
    collect: ClassVar[int] = 32 << 20

    def send(self, pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Any]]:
        """Yields what is shuffled in place of pieces, by bucket."""
        for bucket, piece in pieces:
            yield bucket, (piece.lengths.tobytes(), piece.data)

    def receive(self, sent: Iterable[Any]) -> Iterator[Piece]:
        """Yields the pieces, one after the other; goes through `sent` once."""
        for lengths, data in sent:
            yield Piece(np.frombuffer(lengths, np.int32), data)


@dataclasses.dataclass(frozen=True)
class ByFile:
    """The runner carries places: (file, offset, records, bytes of the records). See `ByValue`.

    The pieces of one call of `send` are one file, whose name is unique even if a bundle is retried; each is its lengths
    and then its records. `receive` changes no file, so it can be repeated.

    Args:
        folder: of the files, on storage that all workers share.
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
        yield from places  # once the file is there

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
