"""Google Cloud Storage: a folder is a common prefix of names, and the server counts each object's generations.

The client of Google's library is one per process, with bounded waits, retries and a pool of connections. Its errors are
identified by name, without an import, and explained: what they mean, and what to do.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from schemas import retries
from schemas.errors import MillraceError
from schemas.storage import globs
from schemas.storage.store import (
    AHEAD,
    DAMAGED,
    FileStat,
    ObjectStore,
    RangeReader,
    Seen,
    check_version,
    network_failure,
    pool,
    redacted,
    split_folder,
    split_object,
)

_REQUEST = re.compile(r"^(\d{3} )?(GET|POST|PUT|PATCH|DELETE|HEAD) \S+: ")  # precedes the server's own message
_LOG_IN = "Run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_REFUSED = "the Google Cloud credentials{source} were refused: {message}"
_EXPLAINED = {
    "NotFound": "no such object or bucket, or it was replaced in the meantime",
    "DefaultCredentialsError": f"no Google Cloud credentials were found. {_LOG_IN}",
    "RefreshError": f"{_REFUSED}. {_LOG_IN}",
    "OAuthError": f"{_REFUSED}. {_LOG_IN}",
    "Unauthorized": f"{_REFUSED}. {_LOG_IN}",
    "Forbidden": "permission denied{permission}: {message}. The account needs the role roles/storage.objectUser on the "
    "bucket",
}


def explain(error: Exception) -> str | None:
    """The message of an error of Google's client libraries in one line, without secrets; None for any other error."""
    if type(error).__name__ == "RetryError":
        last = error.__cause__ or error
        return (
            f"Google Cloud Storage did not do it within {retries.RETRY_SECONDS:g} s of retries; the last failure: "
            f"{failure(last)}. Check its status and the network, and run the command again"
        )
    if _is_transient(error):  # while the command ends, when nothing is repeated
        return f"Google Cloud Storage did not do it: {failure(error)}. Check its status and the network"
    if _library(error) in ("requests", "urllib3"):
        return f"{failure(error)}. Check the network, and run the command again"
    if _library(error) == "google":
        file = credentials_file()
        if type(error).__name__ == "DefaultCredentialsError" and os.environ.get(_VARIABLE):
            return f"{_VARIABLE} is {file}, and no credentials can be read from it: {_message(error)}"
        source = f" in {file}" if os.path.exists(file) else " of this machine"
        return _EXPLAINED.get(type(error).__name__, "{message}").format(
            message=_message(error), source=source, permission=_permission(error)
        )
    return None


def _permission(error: BaseException) -> str:
    """The permission that a request needed, unless the server names it."""
    request = getattr(getattr(error, "response", None), "request", None)
    if request is None or "storage.objects." in _message(error):
        return ""
    reads = "get" if "/o/" in request.url else "list"
    needed = {"GET": reads, "HEAD": reads, "DELETE": "delete"}.get(request.method, "create")
    return f" (storage.objects.{needed})"


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _is_transient(error: BaseException) -> bool:
    """Whether the server's answer says nothing about the request."""
    code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return _library(error) == "google" and code in _TRANSIENT


def failure(error: BaseException) -> str:
    """What happened to a single request: the status of its answer, or what the network did."""
    if type(error).__name__ == "TransportError" and error.args and isinstance(error.args[0], Exception):
        error = error.args[0]  # while a token was asked for
    if _library(error) == "google":
        code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
        return f"status {int(code)}" if code else _message(error)
    return network_failure(error)


def _message(error: BaseException) -> str:
    first = error.args[0] if error.args and isinstance(error.args[0], str) else error  # without the raw answer
    message = redacted(_answered(error) or str(getattr(error, "message", None) or first))
    return " ".join(_REQUEST.sub("", message).split()).rstrip(".")


def _answered(error: BaseException) -> str:
    """What the server said: of an upload, Google's client quotes the whole answer."""
    try:
        return str(getattr(error, "response", None).json()["error"]["message"])  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


CONNECTIONS = 96  # maximum per process: one for each thread that reads images, and for each of the pools below
_TRANSIENT = (408, 429, *range(500, 600))  # the status of an answer that says nothing about the request

# TensorFlow's own client reads these when it is imported, and makes the delays between its tries from them: some 100 s
# in all, where its own defaults are 190 s.
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_RETRIES", "9")
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_DELAY_TIME_US", "16000000")


@functools.cache
def client() -> Any:
    """The client of Google's library, one per process."""
    from google.cloud import storage as gcs  # imported here, because it takes a while: only if gs:// is used
    from requests.adapters import HTTPAdapter

    made = gcs.Client(project=None)  # only creating buckets needs a project
    adapter = HTTPAdapter(pool_maxsize=CONNECTIONS)  # the default is ten; further connections are discarded after use
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)  # private: Google's own advice, and no other way
    return made


def credentials_file() -> str:
    """The file that Google's libraries and TensorFlow look for; it may not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )


os.register_at_fork(after_in_child=client.cache_clear)  # a forked process has no right to its parent's connections


PREFIX = "gs://"
DAMAGED_TRIES = 5  # of a download whose bytes differ from their checksum
UPLOAD_BYTES = 4 << 20  # of a large file in one request, which are in memory at once
_BINARY = "application/octet-stream"


class GcsStore(ObjectStore):
    """Objects of Google Cloud Storage. One of Content-Encoding gzip is read as it is stored, never decompressed."""

    prefix = PREFIX

    explain = staticmethod(explain)

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
        return _whole(_blob(path), path)

    def write(self, path: str, data: bytes) -> None:
        _blob(path).upload_from_string(data, content_type=_BINARY, **_patience(path))

    def delete(self, path: str) -> None:
        """Removes an object, if it exists: a request whose answer was lost may have removed it already."""
        with contextlib.suppress(_error("NotFound")):
            _blob(path).delete(**_patience(path))

    def exists(self, path: str) -> bool:
        return self._is_file(path) or any(_listed(*split_folder(path), max_results=1))

    def listdir(self, path: str) -> list[str]:
        bucket, prefix = split_folder(path)
        listing = _listed(bucket, prefix, delimiter="/")
        names = {blob.name[len(prefix) :] for blob in listing}
        return sorted(n for n in names | {p[len(prefix) :].rstrip("/") for p in listing.prefixes} if n)

    def objects(self, bucket: str, prefix: str, pattern: str | None = None) -> Iterator[tuple[str, FileStat]]:
        """Page by page; the server filters as far as it can."""
        asked = None if pattern is None else globs.for_server(pattern)
        fields = "items(name,size,generation),nextPageToken"
        for blob in _listed(bucket, prefix, match_glob=asked, fields=fields):
            yield blob.name, FileStat(int(blob.size), str(blob.generation))

    def is_object(self, path: str) -> bool:
        return bool(_blob(path).exists(**_patience(path)))

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

    def look(self, path: str) -> Seen:
        blob = _blob(path)
        try:
            data = _whole(blob, path)
        except _error("NotFound"):
            return Seen(None)
        return Seen(data, int(blob.generation))

    def replace(self, path: str, data: bytes | None, seen: Seen) -> Seen:
        blob, condition = _blob(path), {"if_generation_match": seen.generation}
        if data is None:
            blob.delete(**condition, **_patience(path))
            return Seen(None)
        blob.upload_from_string(data, content_type=_BINARY, **condition, **_patience(path))
        return Seen(data, int(blob.generation))

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, (_error("PreconditionFailed"), _error("NotFound")))

    def fenced(self, data: bytes) -> bytes:
        return data


def _blob(path: str, generation: int | None = None) -> Any:
    bucket, name = split_object(path)
    return client().bucket(bucket).blob(name, generation=generation)


def _existing(path: str) -> Any:
    bucket, name = split_object(path)
    blob = client().bucket(bucket).get_blob(name, **_patience(path))
    if blob is None:
        raise MillraceError(f"{path}: no such object")
    return blob


def _listed(bucket: str, prefix: str, **how: Any) -> Any:
    return client().list_blobs(bucket, prefix=prefix, **how, **_patience(f"{PREFIX}{bucket}/{prefix}"))


def _whole(blob: Any, path: str) -> bytes:
    """An object's bytes. Those that arrive damaged are requested again."""
    from google.cloud.storage.exceptions import DataCorruption

    for _ in range(DAMAGED_TRIES):
        try:
            return cast(bytes, blob.download_as_bytes(raw_download=True, **_patience(path)))
        except DataCorruption:
            continue
    raise MillraceError(f"{path}: {DAMAGED}, {DAMAGED_TRIES} times. Check the network, and run the command again")


def _error(name: str) -> type[Exception]:
    """A class of `google.api_core.exceptions`, imported only if gs:// is used."""
    from google.api_core import exceptions

    return cast(type[Exception], getattr(exceptions, name))


def _patience(path: str) -> dict[str, Any]:
    """The arguments of a request for a path that bound how long it is waited for and repeated."""
    return {"retry": retries.storage_retry(path, failure), "timeout": retries.stall_seconds()}
