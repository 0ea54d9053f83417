"""Puts the records of a group in random order in bounded memory: a group that is too large goes through local files.

Every record is sent to one of FANOUT files, drawn uniformly, and each file is shuffled by itself: in memory if it
fits, else in the same way. So every order is equally likely (Rao 1961). The group is read once, whatever its size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from beam_jobs.output import tfrecord_frames

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
        offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self.lengths), buffers)


def pieces_by_bucket(frames: pa.LargeBinaryArray, buckets: np.ndarray) -> Iterator[tuple[int, Piece]]:
    """The records of each bucket that occurs in `buckets`, in ascending order of the buckets."""
    order = np.argsort(buckets, kind="stable")
    ordered, taken = buckets[order], frames.take(pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    for start, stop in itertools.pairwise(bounds):
        if stop > start:
            some = taken.slice(start, stop - start)
            lengths = tfrecord_frames.lengths(some).astype(np.int32)
            yield int(ordered[start]), Piece(lengths, bytes(tfrecord_frames.joined(some)))


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
        held, self._held = self._held, []
        if held:
            frames = pa.concat_arrays([piece.records for piece in held])
            for number, piece in pieces_by_bucket(frames, rng.integers(0, FANOUT, len(frames))):
                self._files.add(number, piece)

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """The records in random order: their framed bytes, and how many they are."""
        if self._files is None:
            held, self._held = self._held, []
            yield from self._permuted(held)
            return
        for number in range(FANOUT):
            with ShuffledGroup((*self._seed, 1 + number), budget=self._budget, chunk=self._chunk) as part:
                part.read(self._files.pieces(number, self._chunk))
                yield from part.chunks()

    def _permuted(self, held: list[Piece]) -> Iterator[tuple[bytes, int]]:
        if not held:
            return
        frames = pa.concat_arrays([piece.records for piece in held])
        held.clear()
        order = np.random.default_rng([*self._seed, 0]).permutation(len(frames))
        ends = np.cumsum(tfrecord_frames.lengths(frames)[order])
        start = 0
        while start < len(order):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + self._chunk, side="right")))
            yield bytes(tfrecord_frames.joined(frames.take(pa.array(order[start:stop])))), stop - start
            start = stop


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
        """The records of a file, in pieces of about `size` bytes; the file is removed at the end."""
        path = self._paths[number]
        lengths = np.fromfile(f"{path}.lengths", np.int32)
        ends = np.cumsum(lengths, dtype=np.int64)
        start = 0
        with open(path, "rb") as file:
            while start < len(lengths):
                before = int(ends[start - 1]) if start else 0
                stop = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
                yield Piece(lengths[start:stop], file.read(int(ends[stop - 1]) - before))
                start = stop
        os.remove(path)
