"""Google Cloud Storage: a folder is a common prefix of names, and the server counts each object's generations."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, BinaryIO, cast

from schemas.concurrency import in_threads
from schemas.errors import MillraceError
from schemas.outage import longest_delay
from schemas.storage import gcs_client, globs
from schemas.storage.gcs_client import OUTAGE, TRANSFERS, client, pool
from schemas.storage.store import (
    AHEAD,
    Changed,
    FileStat,
    RangeReader,
    Seen,
    check_version,
    split_address,
    split_folder,
    split_object,
)

PREFIX = "gs://"
UPLOAD_BYTES = 4 << 20  # of a large file in one request, which are in memory at once
_BINARY = "application/octet-stream"


class GcsStore:
    """Objects in buckets, as files. An object of Content-Encoding gzip is read as it is stored, never decompressed."""

    tensorflow_reads = True

    def explain(self, error: Exception) -> str | None:
        return gcs_client.explain(error)

    def lacks_bucket(self, error: BaseException) -> bool:
        return type(error).__name__ == "NotFound"

    def stat(self, path: str) -> FileStat:
        blob = _existing(path)
        return FileStat(int(blob.size), str(blob.generation))

    def open(self, path: str, version: str | None) -> BinaryIO:
        blob = _existing(path)
        check_version(path, version, str(blob.generation))
        pinned = _blob(path, generation=blob.generation)

        def fetch(first: int, stop: int) -> bytes:
            """A request, as a whole: what is repeated is a piece. The bytes are those that are stored, also of gzip."""
            data = pinned.download_as_bytes(
                start=first,
                end=stop - 1,
                raw_download=True,
                single_shot_download=True,
                checksum=None,
                **_patience(path),
            )
            if len(data) != stop - first:
                found = f"{len(data):,} of {stop - first:,} bytes"
                raise MillraceError(f"{path}: {found} arrived from byte {first:,} on; run the command again")
            return cast(bytes, data)

        return cast(BinaryIO, RangeReader(fetch, int(blob.size), pool()))

    def read(self, path: str) -> bytes:
        """One request, so that all bytes are of one generation; what is missing of a cut answer names it."""
        return cast(bytes, _blob(path).download_as_bytes(raw_download=True, **_patience(path)))

    def write(self, path: str, data: bytes) -> None:
        _blob(path).upload_from_string(data, content_type=_BINARY, **_patience(path))

    def delete(self, path: str) -> None:
        _delete(_blob(path))

    def exists(self, path: str) -> bool:
        bucket, prefix = split_folder(path)
        return _is_object(path) or any(_listed(bucket, prefix, max_results=1))

    def listdir(self, path: str) -> list[str]:
        bucket, prefix = split_folder(path)
        listing = _listed(bucket, prefix, delimiter="/")
        names = {blob.name[len(prefix) :] for blob in listing}
        return sorted(n for n in names | {p[len(prefix) :].rstrip("/") for p in listing.prefixes} if n)

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        """The server filters as far as it can, and lists page by page. A pattern means the same as on local disk."""
        bucket, name = split_address(pattern)
        if _is_object(pattern):
            yield pattern, self.stat(pattern), pattern
            return
        if not globs.MAGIC & set(name):
            return
        blobs = _listed(
            bucket,
            globs.literal_prefix(name),
            match_glob=globs.for_server(name),
            fields="items(name,size,generation),nextPageToken",
        )
        for blob in blobs:
            if not blob.name.endswith("/") and globs.matches(blob.name, name):
                path = f"{PREFIX}{bucket}/{blob.name}"
                yield path, FileStat(int(blob.size), str(blob.generation)), path

    def identity(self, path: str) -> Hashable:
        return path

    def make_folder(self, path: str) -> None:
        """Does nothing: there are no folders."""

    def walk(self, path: str) -> Iterator[str]:
        """Skips the empty objects `name/`, by which TensorFlow creates folders."""
        bucket, prefix = split_folder(path)
        names = (blob.name[len(prefix) :] for blob in _listed(bucket, prefix))
        yield from (name for name in names if name and not name.endswith("/"))

    def remove_folder(self, path: str) -> None:
        bucket, prefix = split_folder(path)
        in_threads(_delete, _listed(bucket, prefix), threads=TRANSFERS)

    def rename(self, source: str, target: str) -> None:
        """Copies the object on the server, then removes the old one."""
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str) -> None:
        if not target.startswith(PREFIX):
            with self.open(source, None) as file, open(target, "wb") as copied:
                shutil.copyfileobj(file, copied, AHEAD)
            return
        blob, destination = _blob(source), _blob(target)
        token, _, _ = destination.rewrite(blob, **_patience(target))
        while token is not None:
            token, _, _ = destination.rewrite(blob, token=token, **_patience(target))

    def upload(self, local: str, target: str) -> None:
        """A large file in one request after another, each of which is repeated alone if it is cut."""
        blob = _blob(target)
        blob.chunk_size = UPLOAD_BYTES
        blob.upload_from_filename(local, content_type=_BINARY, **_patience(target))

    def flush(self, path: str) -> None:
        """Does nothing: the server has stored what it accepted."""

    def flush_name(self, path: str) -> None:
        """Does nothing, for the same reason."""

    def look(self, path: str) -> Seen:
        blob = _blob(path)
        try:
            data = blob.download_as_bytes(raw_download=True, **_patience(path))
        except _error("NotFound"):
            return Seen(None)
        return Seen(data, int(blob.generation))

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        """The server compares the object's generation."""
        if unless is not None and self.look(unless[0]) != unless[1]:
            raise Changed(unless[0])
        blob = _blob(path)
        try:
            if data is None:
                blob.delete(if_generation_match=seen.generation, **_patience(path))
                return Seen(None)
            condition = {"if_generation_match": seen.generation}
            blob.upload_from_string(data, content_type=_BINARY, **condition, **_patience(path))
            return Seen(data, int(blob.generation))
        except (_error("PreconditionFailed"), _error("NotFound")) as error:
            now = self.look(path)
            if now.data == data:  # the client repeated a request whose answer was lost
                return now
            raise Changed(path) from error

    def fence(self, path: str) -> None:
        """Writes the same bytes under a new generation."""
        seen = self.look(path)
        if seen.data is not None:
            with contextlib.suppress(Changed):  # a concurrent swap was faster
                self.swap(path, seen.data, seen, None)


def _is_object(path: str) -> bool:
    """Whether there is an object of this name that is a file: `name/` is a folder."""
    return not path.endswith("/") and bool(split_address(path)[1]) and bool(_blob(path).exists(**_patience(path)))


def _blob(path: str, generation: int | None = None) -> Any:
    bucket, name = split_object(path)
    return client().bucket(bucket).blob(name, generation=generation)


def _existing(path: str) -> Any:
    bucket, name = split_object(path)
    blob = client().bucket(bucket).get_blob(name, **_patience(path))
    if blob is None:
        raise MillraceError(f"{path}: no such object")
    return blob


def _delete(blob: Any) -> None:
    """Removes an object, if it exists: a request whose answer was lost may have removed it already."""
    with contextlib.suppress(_error("NotFound")):
        blob.delete(**_patience(f"{PREFIX}{blob.bucket.name}/{blob.name}"))


def _listed(bucket: str, prefix: str, **how: Any) -> Any:
    return client().list_blobs(bucket, prefix=prefix, **how, **_patience(f"{PREFIX}{bucket}/{prefix}"))


def _error(name: str) -> type[Exception]:
    """A class of `google.api_core.exceptions`, imported only if gs:// is used."""
    from google.api_core import exceptions

    return cast(type[Exception], getattr(exceptions, name))


def _patience(path: str) -> dict[str, Any]:
    """The arguments of a request that repeat it after 429, 5xx and broken connections, while `OUTAGE` allows it.

    By default, the client repeats only requests that name the generation that they expect. Each of ours may be
    repeated: it reads, writes a complete object, or removes one.

    Args:
      path: what is asked for, to be named.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    longest = longest_delay()
    retry = DEFAULT_RETRY.with_timeout(None).with_delay(initial=min(1.0, longest), maximum=longest)

    def repeated(request: Callable[..., Any]) -> Callable[..., Any]:
        begun = time.monotonic()  # of this request: an upload makes many
        return retry(request, on_error=lambda error: OUTAGE.failed(path, gcs_client.failure(error), begun))

    return {"retry": repeated}
