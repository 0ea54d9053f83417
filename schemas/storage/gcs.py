"""Reads and writes objects of Google Cloud Storage, through one client of Google's library for each process.

A folder is a common prefix of object names. The version of an object is its generation, a number that the server
changes with each write. Each wait and the time of all retries of a request are bounded (see `schemas.retries`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
from collections.abc import Hashable, Iterator
from typing import Any, BinaryIO, cast

from schemas import retries
from schemas.concurrency import in_threads
from schemas.errors import MillraceError, UsageError
from schemas.storage import globs
from schemas.storage.gcs_errors import explain, failure
from schemas.storage.store import Changed, FileStat, Snapshot, check_version

CONNECTIONS = 96  # the most connections of a process: one for each thread that reads or writes objects
TRANSFERS = 16  # the number of objects of a folder that are removed at the same time

# TensorFlow's own client of gs:// reads these two variables when it is imported, and computes from them the delays
# between its tries: some 100 s in all. With TensorFlow's defaults they are 190 s.
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_RETRIES", "9")
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_DELAY_TIME_US", "16000000")


@functools.cache
def client() -> Any:
    """Returns the client of Google's library, one per process."""
    from google.cloud import storage as gcs  # imported here, because it takes a while: only if gs:// is used
    from requests.adapters import HTTPAdapter

    made = gcs.Client(project=None)  # only creating buckets needs a project
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS)  # the default is ten; further connections are discarded after use
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)  # private: Google's own advice, and no other way
    return made


os.register_at_fork(after_in_child=client.cache_clear)  # a forked process has no right to its parent's connections


PREFIX = "gs://"
CHUNK = 4 << 20  # the bytes that one request reads of an object
DAMAGED_TRIES = 5  # how often an object is requested if its bytes differ from their checksum
UPLOAD_BYTES = 4 << 20  # the bytes of a large file that one request uploads; they are in memory at once
_BINARY = "application/octet-stream"
DAMAGED = "bytes arrived that differ from their checksum"
_MAX_NAME = 1024  # the most bytes of an object's name on Google Cloud Storage
_BUCKET = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def split_address(path: str) -> tuple[str, str]:
    """Splits an address such as gs://bucket/name into the bucket and the name; the name is '' for the bucket itself.

    Raises:
      UsageError: the bucket is missing or not a valid name (such as a pattern), or the object's name is not valid
        UTF-8.
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
    """Returns the bucket of a folder, and the prefix of the names of all objects in the folder.

    The prefix ends with a slash; it is '' for a whole bucket.
    """
    bucket, name = split_address(path)
    folder = name.rstrip("/")
    return bucket, f"{folder}/" if folder else ""


def split_object(path: str) -> tuple[str, str]:
    """Splits the address of an object into the bucket and the object's name.

    Raises:
      UsageError: the address is that of a bucket, or the name is longer than Google Cloud Storage allows.
    """
    bucket, name = split_address(path)
    size = len(name.encode())
    if size > _MAX_NAME:
        raise UsageError(f"{path[:80]}...: a name of {size:,} bytes; expected at most {_MAX_NAME:,}")
    if not name:
        raise UsageError(f"{path}: is a bucket; expected {path.partition('://')[0]}://bucket/name")
    return bucket, name


class GcsStore:
    """The store of gs:// paths.

    An object with Content-Encoding gzip is read as it is stored, and never decompressed.
    """

    explain = staticmethod(explain)

    def lacks_bucket(self, error: BaseException) -> bool:
        return type(error).__name__ == "NotFound"

    def stat(self, path: str) -> FileStat:
        blob = _existing(path)
        return FileStat(int(blob.size), str(blob.generation))

    def open(self, path: str, version: str | None) -> BinaryIO:
        """Opens one generation of an object for reading. CHUNK bytes are requested at once.

        Bytes are returned as they are stored: an object with Content-Encoding gzip is not decompressed.
        """
        blob = _existing(path)
        check_version(path, version, str(blob.generation))
        condition = {"if_generation_match": blob.generation}
        opened = blob.open("rb", chunk_size=CHUNK, raw_download=True, **condition, **_repeated(path))
        return cast(BinaryIO, _Object(opened, int(blob.size)))

    def read(self, path: str) -> bytes:
        """Reads an object with one request, so that all bytes are of one generation.

        This holds even if the object is replaced meanwhile. If the answer is cut, Google's library requests the rest of
        the same generation.
        """
        return _whole(_blob(path), path)

    def write(self, path: str, data: bytes) -> None:
        _blob(path).upload_from_string(data, content_type=_BINARY, **_repeated(path))

    def delete(self, path: str) -> None:
        """Removes an object.

        An object that is already gone is no error: an earlier try may have removed it, and its answer was lost.
        """
        with contextlib.suppress(_error("NotFound")):
            _blob(path).delete(**_repeated(path))

    def exists(self, path: str) -> bool:
        return self._is_file(path) or any(_listed(*split_folder(path), max_results=1))

    def listdir(self, path: str) -> list[str]:
        bucket, prefix = split_folder(path)
        listing = _listed(bucket, prefix, delimiter="/")
        names = {blob.name[len(prefix) :] for blob in listing}
        # With a delimiter, the server lists the objects directly in the folder, and as prefixes the folders in it.
        return sorted(n for n in names | {p[len(prefix) :].rstrip("/") for p in listing.prefixes} if n)

    def _objects(self, bucket: str, prefix: str, pattern: str | None = None) -> Iterator[tuple[str, FileStat]]:
        """Yields the name and the state of each object, page by page.

        The server filters by the pattern as far as it can.
        """
        server_pattern = None if pattern is None else globs.for_server(pattern)
        fields = "items(name,size,generation),nextPageToken"
        for blob in _listed(bucket, prefix, match_glob=server_pattern, fields=fields):
            yield blob.name, FileStat(int(blob.size), str(blob.generation))

    def copy(self, source: str, target: str) -> None:
        """Downloads an object, uploads a file, or copies on the server, as the two paths require.

        A large file is uploaded in several requests. If one of them is cut, only this one is repeated.
        """
        if not target.startswith(PREFIX):
            with self.open(source, None) as file, open(target, "wb") as copied:
                shutil.copyfileobj(file, copied, CHUNK)
            return
        destination = _blob(target)
        if not source.startswith(PREFIX):
            destination.chunk_size = UPLOAD_BYTES
            destination.upload_from_filename(source, content_type=_BINARY, **_repeated(target))
            return
        blob = _blob(source)
        # The server copies a large object in several steps: each answer has a token for the next step, the last one
        # None.
        token, _, _ = destination.rewrite(blob, **_repeated(target))
        while token is not None:
            token, _, _ = destination.rewrite(blob, token=token, **_repeated(target))

    def look(self, path: str) -> Snapshot:
        blob = _blob(path)
        try:
            data = _whole(blob, path)
        except _error("NotFound"):
            return Snapshot(None)
        return Snapshot(data, int(blob.generation))

    def _replace(self, path: str, data: bytes | None, snapshot: Snapshot) -> Snapshot:
        """Writes or removes an object, if its generation is still that of the snapshot (0: there is no object)."""
        blob, condition = _blob(path), {"if_generation_match": snapshot.generation}
        if data is None:
            blob.delete(**condition, **_repeated(path))
            return Snapshot(None)
        blob.upload_from_string(data, content_type=_BINARY, **condition, **_repeated(path))
        return Snapshot(data, int(blob.generation))

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        """Yields (path, state, identity) of each object that a pattern matches.

        A pattern means the same as on local disk.
        """
        bucket, name = split_address(pattern)
        if self._is_file(pattern):
            yield pattern, self.stat(pattern), pattern
            return
        if not globs.MAGIC & set(name):
            return
        for blob_name, stat in self._objects(bucket, globs.literal_prefix(name), name):
            if not blob_name.endswith("/") and globs.matches(blob_name, name):
                path = f"{PREFIX}{bucket}/{blob_name}"
                yield path, stat, path

    def identity(self, path: str) -> Hashable:
        return path

    def make_folder(self, path: str) -> None:
        """Does nothing: Google Cloud Storage has no folders."""

    def walk(self, path: str) -> Iterator[str]:
        """Yields the names of the objects below a folder, relative to the folder.

        Leaves out the empty objects `name/`, by which TensorFlow and web consoles mark folders.
        """
        bucket, prefix = split_folder(path)
        yield from (name[len(prefix) :] for name, _ in self._objects(bucket, prefix) if not name.endswith("/"))

    def remove_folder(self, path: str) -> None:
        bucket, prefix = split_folder(path)
        names = (f"{PREFIX}{bucket}/{name}" for name, _ in self._objects(bucket, prefix))
        in_threads(self.delete, names, threads=TRANSFERS)

    def rename(self, source: str, target: str) -> None:
        """Copies the object on the server, then removes the old one."""
        self.copy(source, target)
        self.delete(source)

    def flush(self, path: str, exclude: str | None) -> None:
        """Does nothing: whatever the server has accepted is stored."""

    def flush_name(self, path: str) -> None:
        """Does nothing: whatever the server has accepted is stored."""

    def swap(self, path: str, data: bytes | None, snapshot: Snapshot, unless: tuple[str, Snapshot] | None) -> Snapshot:
        """Replaces an object on the condition that its generation is unchanged, which the server checks."""
        if unless is not None and self.look(unless[0]) != unless[1]:
            raise Changed(unless[0])
        try:
            return self._replace(path, data, snapshot)
        except (_error("PreconditionFailed"), _error("NotFound")) as error:
            now = self.look(path)
            if now.data == data:  # our first request succeeded, but its answer was lost and the client repeated it
                return now
            raise Changed(path) from error

    def fence(self, path: str) -> None:
        """Writes the object's bytes again.

        The object gets a new generation, so that swaps that expect the old one fail.
        """
        snapshot = self.look(path)
        if snapshot.data is not None:
            with contextlib.suppress(Changed):  # a concurrent swap was faster
                self.swap(path, snapshot.data, snapshot, None)

    def _is_file(self, path: str) -> bool:
        """Whether there is an object of this name that is not a folder: the name of a folder ends with a slash."""
        return not path.endswith("/") and bool(split_address(path)[1]) and bool(_blob(path).exists(**_repeated(path)))


class _Object(io.BufferedIOBase):
    """An open object, which knows its size.

    At the end it returns b"" itself; Google's reader would ask the server again.
    """

    def __init__(self, reader: Any, size: int) -> None:
        self._reader, self._size = reader, size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - int(self._reader.tell()))
        count = left if size is None or size < 0 else min(size, left)
        return cast(bytes, self._reader.read(count)) if count else b""

    read1 = read

    def close(self) -> None:
        self._reader.close()
        super().close()


def _blob(path: str) -> Any:
    bucket, name = split_object(path)
    return client().bucket(bucket).blob(name)


def _existing(path: str) -> Any:
    bucket, name = split_object(path)
    blob = client().bucket(bucket).get_blob(name, **_repeated(path))
    if blob is None:
        raise MillraceError(f"{path}: no such object")
    return blob


def _listed(bucket: str, prefix: str, **how: Any) -> Any:
    return client().list_blobs(bucket, prefix=prefix, **how, **_repeated(f"{PREFIX}{bucket}/{prefix}"))


def _whole(blob: Any, path: str) -> bytes:
    """Returns an object's bytes.

    If their checksum does not match, the object is requested again, DAMAGED_TRIES times in all.
    """
    from google.cloud.storage.exceptions import DataCorruption

    for _ in range(DAMAGED_TRIES):
        try:
            return cast(bytes, blob.download_as_bytes(raw_download=True, **_repeated(path)))
        except DataCorruption:
            continue
    raise MillraceError(f"{path}: {DAMAGED}, {DAMAGED_TRIES} times. Check the network, and run the command again")


def _error(name: str) -> type[Exception]:
    """Returns a class of `google.api_core.exceptions` by its name. The library is imported only if gs:// is used."""
    from google.api_core import exceptions

    return cast(type[Exception], getattr(exceptions, name))


def _repeated(path: str) -> dict[str, Any]:
    """Returns keyword arguments of a request that limit how long the client waits for it and repeats it."""
    return retries.storage_request(path, failure)
