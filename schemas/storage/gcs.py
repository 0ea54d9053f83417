"""Google Cloud Storage: a folder is a common prefix of names, and the server counts each object's generations."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterator
from typing import Any, BinaryIO, cast

from schemas.errors import MillraceError, UsageError
from schemas.storage.store import Changed, FileStat, Seen, check_version

PREFIX = "gs://"
_MAGIC = frozenset("*?[")
_DOWNLOAD_BYTES = 1 << 20  # the least that is fetched at once
_BINARY = "application/octet-stream"


@functools.cache
def client() -> Any:
    """The client library's client, of this process."""
    from google.cloud import storage as gcs  # imported here: only those who use gs:// wait for it

    return gcs.Client()


class GcsStore:
    """Objects in buckets, as files."""

    def stat(self, path: str) -> FileStat:
        blob = _existing(path)
        return FileStat(int(blob.size), str(blob.generation))

    def open(self, path: str, version: str | None) -> BinaryIO:
        blob = _existing(path)
        check_version(path, version, str(blob.generation))
        return cast(BinaryIO, _blob(path, generation=blob.generation).open("rb", chunk_size=_DOWNLOAD_BYTES))

    def read(self, path: str) -> bytes:
        return cast(bytes, _blob(path).download_as_bytes())  # one request: no generation can go in between

    def write(self, path: str, data: bytes) -> None:
        _blob(path).upload_from_string(data, content_type=_BINARY)

    def delete(self, path: str) -> None:
        with contextlib.suppress(_error("NotFound")):
            _blob(path).delete()

    def exists(self, path: str) -> bool:
        return bool(_blob(path).exists()) or bool(self.listdir(path))

    def listdir(self, path: str) -> list[str]:
        bucket, prefix = _split(path.rstrip("/") + "/")
        listing = client().list_blobs(bucket, prefix=prefix, delimiter="/")
        names = {blob.name[len(prefix) :] for blob in listing}
        return sorted(n for n in names | {p[len(prefix) :].rstrip("/") for p in listing.prefixes} if n)

    def matches(self, pattern: str) -> list[str]:
        bucket, name = _split(pattern)
        if _blob(pattern).exists():
            return [pattern]
        blobs = client().list_blobs(bucket, match_glob=name) if _MAGIC & set(name) else ()
        return [f"{PREFIX}{bucket}/{blob.name}" for blob in blobs if not blob.name.endswith("/")]

    def identity(self, path: str) -> Hashable:
        return path

    def make_folder(self, path: str) -> None:
        """Nothing: there are no folders."""

    def walk(self, path: str) -> Iterator[str]:
        bucket, prefix = _split(path.rstrip("/") + "/")
        yield from (blob.name[len(prefix) :] for blob in client().list_blobs(bucket, prefix=prefix))

    def remove_folder(self, path: str) -> None:
        bucket, prefix = _split(path.rstrip("/") + "/")
        for blob in list(client().list_blobs(bucket, prefix=prefix)):
            with contextlib.suppress(_error("NotFound")):  # another process may be removing the same
                blob.delete()

    def rename(self, source: str, target: str) -> None:
        """A copy on the server's side, and the old object's removal."""
        blob, destination = _blob(source), _blob(target)
        token, _, _ = destination.rewrite(blob)
        while token is not None:
            token, _, _ = destination.rewrite(blob, token=token)
        blob.delete()

    def upload(self, local: str, target: str) -> None:
        _blob(target).upload_from_filename(local)

    def flush(self, path: str) -> None:
        """Nothing: what the server has taken, stays."""

    def flush_name(self, path: str) -> None:
        """Nothing, likewise."""

    def look(self, path: str) -> Seen:
        blob = _blob(path)
        try:
            data = blob.download_as_bytes()
        except _error("NotFound"):
            return Seen(None)
        return Seen(data, int(blob.generation))

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """The object's generation is the condition, and the server decides."""
        if unless is not None and self.look(unless[0]) != unless[1]:
            raise Changed(unless[0])
        blob = _blob(path)
        try:
            if data is None:
                blob.delete(if_generation_match=seen.generation)
                return Seen(None)
            blob.upload_from_string(data, content_type=_BINARY, if_generation_match=seen.generation)
            return Seen(data, int(blob.generation))
        except (_error("PreconditionFailed"), _error("NotFound")) as error:
            now = self.look(path)
            if now.data == data:  # the client sent it twice: the first answer was lost on its way
                return now
            raise Changed(path) from error

    def fence(self, path: str) -> None:
        """Puts the same bytes under another generation."""
        seen = self.look(path)
        if seen.data is not None:
            with contextlib.suppress(Changed):  # by such a swap, which was quicker
                self.swap(path, seen.data, seen, None)


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = path[len(PREFIX) :].partition("/")
    if not bucket:
        raise UsageError(f"{path}: expected {PREFIX}bucket/name")
    return bucket, name


def _blob(path: str, generation: int | None = None) -> Any:
    bucket, name = _split(path)
    return client().bucket(bucket).blob(name, generation=generation)


def _existing(path: str) -> Any:
    bucket, name = _split(path)
    blob = client().bucket(bucket).get_blob(name)
    if blob is None:
        raise MillraceError(f"{path}: no such object")
    return blob


def _error(name: str) -> type[Exception]:
    """A class of `google.api_core.exceptions`, imported only by those who use gs://."""
    from google.api_core import exceptions

    return cast(type[Exception], getattr(exceptions, name))
