"""The interface of a store of files, and what all stores share.

Removes secrets from messages of other libraries, such as keys in the addresses of failed requests.

A file that is read by requests for ranges of its bytes, several of them at once.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import os
import re
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Protocol

from schemas import retries
from schemas.concurrency import in_threads
from schemas.errors import MillraceError, UsageError
from schemas.storage import globs

HIDDEN = "<hidden>"
_RULES = (
    (re.compile(r"(https?://[^\s?#'\"<>]*\?)[^\s'\"<>]+"), rf"\1{HIDDEN}"),  # a signed address, an upload's session
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"<>]+@"), rf"\1{HIDDEN}@"),  # user:password@
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bya29\.[\w.-]+|\bAIza[\w-]{20,}|\bAKIA[0-9A-Z]{12,}"), HIDDEN),  # Google's tokens and keys, Amazon's
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
)


def redacted(text: str) -> str:
    """The text with the queries of web addresses, passwords in addresses, bearer tokens and private keys left out."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


TRANSFERS = 16  # requests at once for the pieces of large objects, or for the objects of a folder
PIECE = 2 << 20  # bytes of a request, at most
AHEAD = 8 << 20  # bytes that are requested ahead of a reader that goes on and on
PEEK = 192 << 10  # bytes that are requested beyond the first read, for the rest of a record


DAMAGED = "bytes arrived that differ from their checksum"


def network_failure(error: BaseException) -> str:
    """What the network did to a single request."""
    if "Timeout" in type(error).__name__ or "timed out" in str(error):
        return f"nothing arrived for {retries.STALL_SECONDS:g} s"
    return f"the connection could not be made, or was cut ({type(error).__name__})"


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


_MAX_NAME = 1024  # bytes of an object's name, on Google Cloud Storage
_BUCKET = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes and its version: the mtime in nanoseconds, or the object's generation or ETag."""

    size: int
    version: str


@dataclasses.dataclass(frozen=True)
class Seen:
    """A file as it was read: its bytes (None: no file), and its generation, or ETag, on stores that have these."""

    data: bytes | None
    generation: int | str = 0


class Changed(MillraceError):
    """The file has changed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was changed by another process")


class Store(Protocol):
    """Files by path. Methods raise the errors of the system or the client library; `explain` says what they mean.

    To add a store, write a class with these methods, and add its prefix to `schemas.storage.paths`.
    """

    def explain(self, error: Exception) -> str | None:
        """The message of an error that this store raises, in one line without secrets; None for any other error."""

    def lacks_bucket(self, error: BaseException) -> bool:
        """Whether an error of a listing says that there is no such bucket."""

    def stat(self, path: str) -> FileStat:
        """A file's size and version."""

    def open(self, path: str, version: str | None) -> BinaryIO:
        """Opens a seekable binary file; MillraceError if a version is given and the file has another."""

    def read(self, path: str) -> bytes:
        """The complete content at one moment."""

    def write(self, path: str, data: bytes) -> None:
        """Writes a file in one step: readers see the old content or the new, never a part."""

    def delete(self, path: str) -> None:
        """Removes a file, if it exists."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder of this name."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where there is no such folder."""

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        """The files that a path or a glob names, in any order: path, size and version (None: unknown), and identity.

        Holds little in memory, however many files there are.
        """

    def identity(self, path: str) -> Hashable:
        """A value that is equal for two paths of the same file."""

    def make_folder(self, path: str) -> None:
        """Creates a folder and its parents, durably; does nothing on a store without folders."""

    def walk(self, path: str) -> Iterator[str]:
        """Yields the files below a folder, by their paths relative to it, sorted."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder and everything below it, if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames a file within this store."""

    def copy(self, source: str, target: str) -> None:
        """Copies a file of this store to another path, of this store or local, in one step."""

    def upload(self, local: str, target: str) -> None:
        """Copies a local file to this store, in one step."""

    def flush(self, path: str) -> None:
        """Flushes a folder, everything below it, and its own name to disk."""

    def flush_name(self, path: str) -> None:
        """Flushes the name of a file or folder to disk."""

    def look(self, path: str) -> Seen:
        """The file's current bytes, and what a swap compares with."""

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """Replaces or removes a file that has not changed; see `schemas.storage.folders.swap`."""

    def fence(self, path: str) -> None:
        """Makes every swap fail that has compared already and is not complete; it must compare again."""


def check_version(path: str, expected: str | None, found: str) -> None:
    """Raises MillraceError unless the version is the expected one; None accepts any."""
    if expected is not None and expected != found:
        raise MillraceError(
            f"{path}: changed while it was being read (version {found}, expected {expected}); start again"
        )


def split_address(path: str) -> tuple[str, str]:
    """The bucket and the name of an address such as gs://bucket/name; the name is '' for the bucket itself.

    Raises:
      UsageError: there is no bucket, a pattern in place of it, or a name that no object can have.
    """
    scheme, _, rest = path.partition("://")
    bucket, _, name = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{path}: expected {scheme}://bucket/name, and {bucket!r} is not the name of a bucket")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path!r}: not valid UTF-8, as the names of objects are") from None
    return bucket, name


def split_folder(path: str) -> tuple[str, str]:
    """The bucket, and the prefix of all names in a folder; the prefix is '' for the bucket itself."""
    bucket, name = split_address(path)
    folder = name.rstrip("/")
    return bucket, f"{folder}/" if folder else ""


def split_object(path: str) -> tuple[str, str]:
    """The same for an object.

    Raises:
      UsageError: this is the address of a bucket, or longer than a name can be.
    """
    bucket, name = split_address(path)
    size = len(name.encode())
    if size > _MAX_NAME:
        raise UsageError(f"{path[:80]}...: a name of {size:,} bytes; expected at most {_MAX_NAME:,}")
    if not name:
        raise UsageError(f"{path}: is a bucket; expected {path.partition('://')[0]}://bucket/name")
    return bucket, name


def folder_error(path: str) -> UsageError:
    """The error about a folder that is given as a file."""
    examples = f"{os.path.join(path, '*.csv')}, or {os.path.join(path, '*/*')} for images in folders"
    return UsageError(f"{path}: is a folder; give files, or a glob pattern such as {examples}")


class ObjectStore(Store, Protocol):
    """Objects in buckets, as files: what every such store does alike. A folder is a common prefix of names.

    Attributes:
      prefix: how the addresses of the store begin.
    """

    prefix: str

    def objects(self, bucket: str, prefix: str, pattern: str | None = None) -> Iterator[tuple[str, FileStat]]:
        """The objects whose names begin with a prefix, sorted; those that a pattern does not match may be left out."""

    def is_object(self, path: str) -> bool:
        """Whether there is an object of this name, which names one."""

    def replace(self, path: str, data: bytes | None, seen: Seen) -> Seen:
        """Replaces or removes an object if the server finds it as it was seen."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether the server says with this error that an object is not as it was seen."""

    def fenced(self, data: bytes) -> bytes:
        """Bytes of the same meaning, which make another generation of an object."""

    def exists(self, path: str) -> bool:
        return self._is_file(path) or any(True for _ in self.objects(*split_folder(path)))

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        """A pattern means the same as on local disk."""
        bucket, name = split_address(pattern)
        if self._is_file(pattern):
            yield pattern, self.stat(pattern), pattern
            return
        if not globs.MAGIC & set(name):
            return
        for found, stat in self.objects(bucket, globs.literal_prefix(name), name):
            if not found.endswith("/") and globs.matches(found, name):
                path = f"{self.prefix}{bucket}/{found}"
                yield path, stat, path

    def identity(self, path: str) -> Hashable:
        return path

    def make_folder(self, path: str) -> None:
        """Does nothing: there are no folders."""
        return

    def walk(self, path: str) -> Iterator[str]:
        """Skips the empty objects `name/`, by which TensorFlow and consoles create folders."""
        bucket, prefix = split_folder(path)
        yield from (name[len(prefix) :] for name, _ in self.objects(bucket, prefix) if not name.endswith("/"))

    def remove_folder(self, path: str) -> None:
        bucket, prefix = split_folder(path)
        names = (f"{self.prefix}{bucket}/{name}" for name, _ in self.objects(bucket, prefix))
        in_threads(self.delete, names, threads=TRANSFERS)

    def rename(self, source: str, target: str) -> None:
        """Copies the object on the server, then removes the old one."""
        self.copy(source, target)
        self.delete(source)

    def flush(self, path: str) -> None:
        """Does nothing: the server has stored what it accepted."""
        return

    def flush_name(self, path: str) -> None:
        """Does nothing, for the same reason."""
        return

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """The server compares the object's generation, or ETag."""
        if unless is not None and self.look(unless[0]) != unless[1]:
            raise Changed(unless[0])
        try:
            return self.replace(path, data, seen)
        except Exception as error:
            if not self.is_refusal(error):
                raise
            now = self.look(path)
            if now.data == data:  # the client repeated a request whose answer was lost
                return now
            raise Changed(path) from error

    def fence(self, path: str) -> None:
        """Writes what means the same under a new generation."""
        seen = self.look(path)
        if seen.data is not None:
            with contextlib.suppress(Changed):  # a concurrent swap was faster
                self.swap(path, self.fenced(seen.data), seen, None)

    def _is_file(self, path: str) -> bool:
        """Whether there is an object of this name that is a file: `name/` is a folder."""
        return not path.endswith("/") and bool(split_address(path)[1]) and self.is_object(path)
