"""Streams a CSV file from its beginning: decompressed, as UTF-8 or Latin-1, with line feeds as line ends."""

from __future__ import annotations

import codecs
import gzip
import zlib
from typing import BinaryIO, Protocol, cast

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage.content import Bytes

GZIP_MAGIC = b"\x1f\x8b"
# Decompressed to compressed size: most CSV grows 5 to 20 times, a thousand one-hot columns 400 times with gzip -9, and
# a file of zeros 1,030 times.
MAX_INPUT_RATIO = 500.0
_FREE_BYTES = 64 << 20  # any file may decompress to this, however small it is


class Reader(Bytes, Protocol):
    """A file's bytes."""

    @property
    def consumed(self) -> int:
        """How many bytes of the file, as it is stored, have been read."""


class _Layer:
    """Reads from another reader."""

    def __init__(self, source: Reader) -> None:
        self._source = source

    @property
    def consumed(self) -> int:
        """See `Reader`."""
        return self._source.consumed

    def close(self) -> None:
        """Closes the file."""
        self._source.close()


class Gunzip(_Layer):
    """Decompresses gzip, also of several members; refuses truncated and corrupt files, and gzip bombs."""

    def __init__(self, file: Reader, *, path: str, compressed: int, max_ratio: float) -> None:
        super().__init__(file)
        self._path = path
        self._gzip = gzip.GzipFile(fileobj=cast(BinaryIO, file))
        self._compressed = compressed
        self._limit = max(_FREE_BYTES, int(compressed * max_ratio))
        self._max_ratio = max_ratio
        self._done = 0

    def read(self, size: int, /) -> bytes:
        try:
            data = self._gzip.read(size)
        except EOFError as error:
            raise MillraceError(
                f"{self._path}: the gzip file is truncated after {self._done} decompressed bytes; get a new copy"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise MillraceError(
                f"{self._path}: corrupt gzip data after {self._done} decompressed bytes: {error}"
            ) from error
        self._done += len(data)
        if self._done > self._limit:
            raise MillraceError(
                f"{self._path}: its {self._compressed:,} bytes decompress to more than {self._limit:,}, which is over "
                f"{self._limit // max(self._compressed, 1):,} times as many, as a gzip bomb does; --max_input_ratio "
                f"{self._max_ratio:g} is allowed. If the file is correct, raise --max_input_ratio."
            )
        return data


class Utf16ToUtf8(_Layer):
    """Re-encodes UTF-16. A lone surrogate becomes invalid UTF-8, so that its row is rejected later."""

    def __init__(self, source: Reader, *, path: str, codec: str) -> None:
        super().__init__(source)
        self._path = path
        self._decoder = codecs.getincrementaldecoder(codec)("surrogatepass")
        self._left = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while len(self._left) < size and not self._ended:
            data = self._source.read(max(size, 2))
            self._ended = not data
            try:
                text = self._decoder.decode(data, self._ended)
            except UnicodeDecodeError as error:
                raise MillraceError(f"{self._path}: not UTF-16: {error.reason}") from error
            self._left += text.encode("utf-8", "surrogatepass")
        data, self._left = self._left[:size], self._left[size:]
        return data


class ReturnsToLineFeeds(_Layer):
    """Converts classic Mac OS line ends (carriage returns) to line feeds."""

    def read(self, size: int, /) -> bytes:
        return self._source.read(size).replace(b"\r", b"\n")


class StoredFile:
    """A file as it is stored, from a position on. Its read errors name it."""

    def __init__(self, path: str, *, version: str, position: int = 0) -> None:
        self._file, self._path = storage.open_read(path, version=version), path
        self._file.seek(position)
        self.consumed = 0

    def read(self, size: int, /) -> bytes:
        with storage.wrap_errors(self._path):
            data = self._file.read(size)
        self.consumed += len(data)
        return data

    def close(self) -> None:
        self._file.close()


def open_stream(
    path: str,
    *,
    version: str,
    size: int,
    gzipped: bool,
    codec: str,
    lone_cr: bool,
    max_ratio: float = MAX_INPUT_RATIO,
    source: Reader | None = None,
) -> Reader:
    """Opens a file at its first byte.

    Args:
      path, version, size: the file.
      gzipped: it is compressed.
      codec: utf-8 and latin-1 pass through; utf-16, -le and -be are re-encoded.
      lone_cr: its lines end with carriage returns.
      max_ratio: how many times its size it may decompress to.
      source: its bytes as they are stored, if it is open already.
    """
    source = source or StoredFile(path, version=version)
    if gzipped:
        source = Gunzip(source, path=path, compressed=size, max_ratio=max_ratio)
    if codec.startswith("utf-16"):
        source = Utf16ToUtf8(source, path=path, codec=codec)
    return ReturnsToLineFeeds(source) if lone_cr else source
