"""How the runner's shuffle carries pieces of shards: as they are, or as their places in files that all workers read.

Prism keeps what it shuffles in memory, and hands a worker all groups of a step in one message; both would grow with
the data. So there the records go through files in the staging folder, and Prism carries some bytes for each piece.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np

from beam_jobs.output.external_shuffle import Piece
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.storage import folders


class Carrier(Protocol):
    """Turns pieces to what the runner shuffles, and back.

    Attributes:
        sent: the type of (bucket, what is shuffled for a piece), by which Beam chooses the coder.
        collect: bytes of records that a bundle collects before it sends them.
    """

    sent: ClassVar[Any]
    collect: ClassVar[int]

    def send(self, pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Any]]:
        """What is shuffled for pieces, by bucket."""

    def receive(self, sent: Iterable[Any]) -> Iterator[Piece]:
        """The pieces, one after the other; goes through `sent` once."""


@dataclasses.dataclass(frozen=True)
class ByValue:
    """The runner carries the records: (lengths, framed records). Implements `Carrier`."""

    sent: ClassVar[Any] = tuple[int, tuple[bytes, bytes]]
    collect: ClassVar[int] = 32 << 20

    def send(self, pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Any]]:
        for bucket, piece in pieces:
            yield bucket, (piece.lengths.tobytes(), piece.data)

    def receive(self, sent: Iterable[Any]) -> Iterator[Piece]:
        for lengths, data in sent:
            yield Piece(np.frombuffer(lengths, np.int32), data)


@dataclasses.dataclass(frozen=True)
class ByFile:
    """The runner carries places: (file, offset, records, bytes of the records). Implements `Carrier`.

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
                found = file.read(index + size)
            if len(found) != index + size:
                expected = f"{index + size:,} bytes from {start:,} on"
                raise MillraceError(f"{path}: expected {expected}, found {len(found):,}: the file is truncated")
            yield Piece(np.frombuffer(found, np.int32, rows), found[index:])
