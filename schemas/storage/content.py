"""Digests the content of a file, block by block, so that several workers can digest one file together.

Workers read a file of 100 GB in ranges. A digest of the ranges' digests would depend on how the file was cut into
ranges. So the file is digested in blocks of a fixed size (BLOCK_BYTES), and the digest of the file is made of the
digests of its blocks. A block often crosses the border of two ranges: the worker in whose range the block begins
digests the whole block, and for this reads past the end of its range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from schemas.errors import MillraceError
from schemas.storage.paths import open_read, wrap_errors

BLOCK_BYTES = 8 << 20
_CHUNK = 1 << 20  # the bytes that are read at once to finish a block


class Bytes(Protocol):
    """An open file that is read from front to back.

    `read(n)` returns up to n bytes, and b"" only at the end of the file.
    """

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Digest(Protocol):
    """A running digest, as `hashlib.sha256()` returns it."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class DigestedBlocks:
    """Wraps an open file: `read` returns the file's bytes unchanged, and digests the blocks that begin in [start, end).

    Args:
      file: the open file; its next byte is the byte `position` of the whole file.
      position: the offset of the next byte, in bytes; at most the offset of the first block that begins in the range.
      start: where the range begins, in bytes.
      end: where the range ends, in bytes; None: at the end of the file.
    """

    def __init__(self, file: Bytes, *, position: int, start: int, end: int | None) -> None:
        self._file, self._begin, self._position, self._start, self._end = file, position, position, start, end
        self._open: Digest | None = None
        self._digests: dict[int, str] = {}

    @property
    def consumed(self) -> int:
        """The number of bytes that were read through this object."""
        return self._position - self._begin

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._take(memoryview(data))
        return data

    def close(self) -> None:
        self._file.close()

    def digests(self) -> dict[int, str]:
        """Returns the SHA-256 of each block that begins in the range, in hex, by the block's number in the file.

        First reads whatever the caller has not read of these blocks, so that each digest covers a whole block.
        """
        while self._open is not None or self._end is None or self._position < self._end:
            if not self.read(_CHUNK):
                break
        self._close()
        return self._digests

    def _take(self, data: memoryview) -> None:
        """Adds bytes that were read to the digests of their blocks, and closes each block that ends among them."""
        while len(data):
            # The block that the next byte belongs to, and the offset of this byte in the block.
            number, inside = divmod(self._position, BLOCK_BYTES)
            if not inside:
                self._close()
                if self._start <= self._position and (self._end is None or self._position < self._end):
                    self._open, self._number = hashlib.sha256(), number
            # At most up to the end of the block. Bytes outside all blocks of the range are only counted.
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
    """Returns the digest of a file, made of its blocks' digests, in hex; None if a block is missing.

    The digest is the SHA-256 of the blocks' SHA-256 digests, one after the other in the order of the blocks.

    Args:
      size: the size of the file, in bytes.
      blocks: the SHA-256 of each block, in hex, by the block's number: the results of `DigestedBlocks.digests` of all
        readers of the file, merged.
    """
    # The number of blocks: size / BLOCK_BYTES, rounded up.
    count = -(-size // BLOCK_BYTES)
    if sorted(blocks) != list(range(count)):
        return None
    return hashlib.sha256(b"".join(bytes.fromhex(blocks[number]) for number in range(count))).hexdigest()


def digest_blocks(path: str, *, version: str | None) -> dict[int, str]:
    """Reads a whole file, and returns the SHA-256 of each of its blocks, in hex, by block number.

    Args:
      path: the file.
      version: the version that the file must have (see `FileStat.version`); None accepts any version.

    Raises:
      MillraceError: the file cannot be read, or has another version.
    """
    with wrap_errors(path), open_read(path, version=version) as file:
        return DigestedBlocks(file, position=0, start=0, end=None).digests()


def digest_file(path: str, *, size: int, version: str | None = None) -> str:
    """Reads a file and returns its digest, as `content_digest` defines it, in hex.

    Args:
      path: the file.
      size: the size that the file must have, in bytes.
      version: the version that the file must have; None accepts any version.

    Raises:
      MillraceError: the file cannot be read, or has another size or version.
    """
    digest = content_digest(size, digest_blocks(path, version=version))
    if digest is None:
        raise MillraceError(f"{path}: changed while it was read; start again once it is complete")
    return digest


def sha256_of(chunks: Iterable[bytes]) -> tuple[int, str]:
    """Returns the number of bytes in some chunks, and the SHA-256 of all chunks together, in hex.

    >>> sha256_of([b"ab", b"c"])
    (3, 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
    """
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()
