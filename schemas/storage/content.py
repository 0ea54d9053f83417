"""Digests the content of a file, block by block, so that many workers can digest one file.

Workers read a file of 100 GB in ranges. A digest of the ranges' digests would depend on how the file was cut; blocks of
a fixed size do not. A block belongs to the reader in whose range it begins, who reads it to its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from schemas.errors import MillraceError
from schemas.storage.paths import open_read, wrap_errors

BLOCK_BYTES = 8 << 20
_CHUNK = 1 << 20  # bytes that are read at once to finish a block


class Bytes(Protocol):
    """What is read: `read(n)` returns up to n bytes, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Digest(Protocol):
    """A digest as it grows."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class DigestedBlocks:
    """Passes the bytes of a file on, and digests the blocks that begin in [start, end).

    Args:
      file: the file's bytes from `position` on.
      position: at most where the first of the blocks begins.
      start, end: the range; None: the end of the file.
    """

    def __init__(self, file: Bytes, *, position: int, start: int, end: int | None) -> None:
        self._file, self._begin, self._position, self._start, self._end = file, position, position, start, end
        self._open: Digest | None = None
        self._digests: dict[int, str] = {}

    @property
    def consumed(self) -> int:
        """How many bytes were read."""
        return self._position - self._begin

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._take(memoryview(data))
        return data

    def close(self) -> None:
        self._file.close()

    def digests(self) -> dict[int, str]:
        """Returns the SHA-256 of each of the blocks, by its number, in hex. Reads what is left of them."""
        while self._open is not None or self._end is None or self._position < self._end:
            if not self.read(_CHUNK):
                break
        self._close()
        return self._digests

    def _take(self, data: memoryview) -> None:
        while len(data):
            number, inside = divmod(self._position, BLOCK_BYTES)
            if not inside:
                self._close()
                if self._start <= self._position and (self._end is None or self._position < self._end):
                    self._open, self._number = hashlib.sha256(), number
            part = data[: BLOCK_BYTES - inside]
            if self._open is not None:
                self._open.update(part)
            self._position += len(part)
            data = data[len(part) :]
            if not self._position % BLOCK_BYTES:
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._digests[self._number] = self._open.hexdigest()
            self._open = None


def content_digest(size: int, blocks: Mapping[int, str]) -> str | None:
    """Returns the digest of a file: the SHA-256 of its blocks' SHA-256, in hex. None if a block is missing.

    Args:
      size: the file's, in bytes.
      blocks: as `DigestedBlocks.digests` gives them, of all readers together.
    """
    count = -(-size // BLOCK_BYTES)
    if sorted(blocks) != list(range(count)):
        return None
    return hashlib.sha256(b"".join(bytes.fromhex(blocks[number]) for number in range(count))).hexdigest()


def digest_blocks(path: str, *, version: str | None) -> dict[int, str]:
    """Returns the SHA-256 of all blocks of a file, which is read from its beginning to its end.

    `version`: the one to read.

    Raises:
      MillraceError: the file cannot be read, or has another version.
    """
    with wrap_errors(path), open_read(path, version=version) as file:
        return DigestedBlocks(file, position=0, start=0, end=None).digests()


def digest_file(path: str, *, size: int, version: str | None = None) -> str:
    """Returns the digest of a file of this size; see `digest_blocks`.

    Raises:
      MillraceError: the file cannot be read, or has another size or version.
    """
    digest = content_digest(size, digest_blocks(path, version=version))
    if digest is None:
        raise MillraceError(f"{path}: changed while it was read; start again once it is complete")
    return digest


def sha256_of(chunks: Iterable[bytes]) -> tuple[int, str]:
    """Returns how many bytes there are, and their SHA-256 in hex.

    >>> sha256_of([b"ab", b"c"])
    (3, 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
    """
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()
