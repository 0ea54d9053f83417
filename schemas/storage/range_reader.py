"""A file that is read by requests for ranges of its bytes, several of them at once."""

from __future__ import annotations

import collections
import functools
import io
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

TRANSFERS = 16  # requests at once for the pieces of large objects, or for the objects of a folder
PIECE = 2 << 20  # bytes of a request, at most
AHEAD = 8 << 20  # bytes that are requested ahead of a reader that goes on and on
PEEK = 192 << 10  # bytes that are requested beyond the first read, for the rest of a record


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads that download pieces of objects; they start when they are needed."""
    return ThreadPoolExecutor(TRANSFERS, thread_name_prefix="transfers")


os.register_at_fork(after_in_child=pool.cache_clear)  # a forked process has none of its parent's threads


class RangeReader(io.BufferedIOBase):
    """Reads a file of known size. Not for several threads at once.

    The first read after a `seek` requests what was asked and PEEK bytes more, in pieces, all at once. Further reads
    keep AHEAD bytes on their way, so that the time until an answer begins is waited for once.

    Args:
      fetch: gets the bytes from `start` to `stop`, which are all inside the file; called by threads of the pool.
      size: of the file, in bytes.
      pool: whose threads fetch.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, pool: ThreadPoolExecutor) -> None:
        self._fetch = fetch
        self._size = size
        self._pool = pool
        self._position = 0
        self._pieces: collections.deque[tuple[int, int, Future[bytes]]] = collections.deque()  # first byte, stop
        self._requested = -1  # where the pieces end; -1 before the first read
        self._reads_on = False  # beyond what its first read requested

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to byte {start + offset}")
        self._position = start + offset
        first = self._pieces[0][0] if self._pieces else self._requested
        if not first <= self._position <= self._requested:
            self._drop()
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        if self.closed:
            raise ValueError("the file is closed")
        wanted = self._size if size is None or size < 0 else min(self._position + size, self._size)
        self._request(wanted)
        parts = []
        while self._position < wanted:
            first, stop, piece = self._pieces[0]
            if self._position < stop:
                parts.append(memoryview(piece.result())[self._position - first : wanted - first])
                self._position = min(stop, wanted)
            if self._position >= stop:
                self._pieces.popleft()
        return b"".join(parts)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    readinto1 = readinto

    def close(self) -> None:
        self._drop()
        super().close()

    def _request(self, wanted: int) -> None:
        """Requests the bytes up to `wanted`, and some ahead, unless they are on their way."""
        if self._requested < 0:
            self._requested = self._position
        elif wanted > self._requested:
            self._reads_on = True
        ahead = AHEAD if self._reads_on else PEEK
        if wanted > self._requested or (self._reads_on and self._requested < wanted + ahead - PIECE):
            stop = min(wanted + ahead, self._size)
            for first in range(self._requested, stop, PIECE):
                last = min(first + PIECE, stop)
                self._pieces.append((first, last, self._pool.submit(self._fetch, first, last)))
            self._requested = max(self._requested, stop)

    def _drop(self) -> None:
        for _, _, piece in self._pieces:
            piece.cancel()
        self._pieces.clear()
        self._requested = -1
        self._reads_on = False
