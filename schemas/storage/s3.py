"""Amazon S3, and servers with its API: a folder is a common prefix of keys, and an object's version is its ETag.

Commits depend on conditional writes and deletes (If-Match, If-None-Match), which the server must support.

What the errors of Amazon's client libraries mean, and what to do. They are identified by name, without an import.
"""

from __future__ import annotations

import functools
import random
import secrets
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from schemas import outage
from schemas.errors import MillraceError, UsageError
from schemas.outage import Outage
from schemas.storage.store import (
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

MISSING = ("NoSuchKey", "NoSuchBucket", "404")
CHANGED = (*MISSING, "PreconditionFailed", "412", "ConditionalRequestConflict", "409")
_LOG_IN = "Run 'aws configure' or 'aws sso login', or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_REFUSED = f"the AWS credentials were refused: {{}}. {_LOG_IN}"
_FORBIDDEN = "permission denied{permission}: {}. The account needs s3:ListBucket, GetObject, PutObject and DeleteObject"
_PERMISSIONS = {
    "HeadObject": "GetObject",
    "ListObjectsV2": "ListBucket",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
}  # those of operations that are not called like their permission
_EXPLAINED = {
    **dict.fromkeys(MISSING, "no such object or bucket"),
    **dict.fromkeys(("PreconditionFailed", "412"), "changed while it was being read; start again"),
    **dict.fromkeys(("AccessDenied", "403"), _FORBIDDEN),
    **dict.fromkeys(("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"), _REFUSED),
    "NoCredentialsError": f"no AWS credentials were found. {_LOG_IN}",
}


def code_of(error: BaseException) -> str:
    """The server's code of an error; '' if it is not the server's."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def is_of_network(error: Exception) -> bool:
    """Whether a request got no answer, or only a part of one; another one may."""
    from botocore.exceptions import ConnectionError as NotConnected
    from botocore.exceptions import HTTPClientError

    return isinstance(error, NotConnected | HTTPClientError)


def failure(error: Exception) -> str:
    """What happened to a single request that has no complete answer."""
    return DAMAGED if "Checksum" in type(error).__name__ else network_failure(error)


def explain(error: Exception) -> str | None:
    """The message of an error of Amazon's client libraries in one line, without secrets; None for any other error."""
    if isinstance(error, outage.GaveUp):
        return str(error)
    if type(error).__module__.split(".")[0] not in ("boto3", "botocore", "s3transfer"):
        return None
    if isinstance(error.__context__, Exception) and code_of(error.__context__):  # of an upload, which wraps it
        error = error.__context__
    operation = str(getattr(error, "operation_name", ""))
    permission = f" (s3:{_PERMISSIONS.get(operation, operation)})" if operation else ""
    message = " ".join(redacted(str(error)).split()).rstrip(".")
    return _EXPLAINED.get(code_of(error) or type(error).__name__, "{}").format(message, permission=permission)


PREFIX = "s3://"
OUTAGE = Outage("Amazon S3")
_TRANSIENT = ("408", "429", "500", "502", "503", "504", "RequestTimeout", "SlowDown", "Throttling", "InternalError")
_CONNECTIONS = 64
_BEGUN = "millrace begun"


@functools.cache
def client(stall_seconds: float = outage.STALL_SECONDS) -> Any:
    """A client of Amazon's library. Its environment variables name the endpoint and the region.

    It repeats no request but as `_after` says.

    Args:
      stall_seconds: how long a connection, or the next bytes of an answer, may take.
    """
    try:
        from boto3.session import Session
        from botocore.config import Config
    except ImportError as error:
        from schemas.source_distribution import how_to_install

        raise UsageError(f"{PREFIX} needs the package boto3: {how_to_install('s3')}") from error
    made = Session().client(
        "s3",
        config=Config(
            max_pool_connections=_CONNECTIONS,
            connect_timeout=stall_seconds,
            read_timeout=stall_seconds,
            retries={"mode": "standard", "total_max_attempts": 1},
        ),
    )
    made.meta.events.register("before-call.s3", _before)
    made.meta.events.register("needs-retry.s3", _after)
    return made


def _client() -> Any:
    """The client that waits for as long as may be waited now; one per process for each."""
    return client() if OUTAGE.wait() >= outage.STALL_SECONDS else client(outage.LEAVING_SECONDS)


def _before(context: dict[str, Any], **_: Any) -> None:
    context[_BEGUN] = time.monotonic()


def _after(
    request_dict: dict[str, Any],
    attempts: int,
    response: tuple[Any, dict[str, Any]] | None,
    caught_exception: Exception | None,
    **_: Any,
) -> float | None:
    """How long to wait before a request is repeated; None if it is not."""
    status = str(response[0].status_code) if response else ""
    code = str(response[1].get("Error", {}).get("Code", "")) if response else ""
    if caught_exception is None and status not in _TRANSIENT and code not in _TRANSIENT:
        OUTAGE.answered()
        return None
    if caught_exception is not None and not is_of_network(caught_exception):
        return None
    what = f"status {status}" if caught_exception is None else failure(caught_exception)
    OUTAGE.failed(request_dict["url"].partition("?")[0], what, request_dict["context"][_BEGUN])
    return min(outage.longest_delay(), 2.0 ** (attempts - 1)) * random.uniform(0.5, 1)


class S3Store(ObjectStore):
    """Objects of Amazon S3."""

    tensorflow_reads = False
    prefix = PREFIX

    explain = staticmethod(explain)

    def lacks_bucket(self, error: BaseException) -> bool:
        return code_of(error) == "NoSuchBucket"

    def stat(self, path: str) -> FileStat:
        found = _client().head_object(**_named(path))
        return FileStat(int(found["ContentLength"]), str(found["ETag"]))

    def open(self, path: str, version: str | None) -> BinaryIO:
        found = self.stat(path)
        check_version(path, version, found.version)

        def fetch(first: int, stop: int) -> bytes:
            data = _get(path, Range=f"bytes={first}-{stop - 1}", IfMatch=found.version)[0]
            if len(data) != stop - first:
                raise MillraceError(f"{path}: {len(data):,} of {stop - first:,} bytes arrived; run the command again")
            return data

        return cast(BinaryIO, RangeReader(fetch, found.size, pool()))

    def read(self, path: str) -> bytes:
        return _get(path)[0]

    def write(self, path: str, data: bytes) -> None:
        _client().put_object(**_named(path), Body=data)

    def delete(self, path: str) -> None:
        _client().delete_object(**_named(path))

    def listdir(self, path: str) -> list[str]:
        bucket, prefix = split_folder(path)
        names: set[str] = set()
        for page in _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
            names.update(entry["Key"] for entry in page.get("Contents", ()))
            names.update(entry["Prefix"].rstrip("/") for entry in page.get("CommonPrefixes", ()))
        return sorted(name[len(prefix) :] for name in names if len(name) > len(prefix))

    def objects(self, bucket: str, prefix: str, pattern: str | None = None) -> Iterator[tuple[str, FileStat]]:
        for page in _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                yield found["Key"], FileStat(int(found["Size"]), str(found["ETag"]))

    def is_object(self, path: str) -> bool:
        try:
            self.stat(path)
        except Exception as error:
            if code_of(error) not in MISSING:
                raise
            return False
        return True

    def copy(self, source: str, target: str) -> None:
        if target.startswith(PREFIX):
            _client().copy(_named(source), *split_object(target))
        else:
            _client().download_file(*split_object(source), target)

    def upload(self, local: str, target: str) -> None:
        _client().upload_file(local, *split_object(target))

    def look(self, path: str) -> Seen:
        try:
            return Seen(*_get(path))
        except Exception as error:
            if code_of(error) != "NoSuchKey":
                raise
            return Seen(None)

    def replace(self, path: str, data: bytes | None, seen: Seen) -> Seen:
        condition = {"IfNoneMatch": "*"} if seen.data is None else {"IfMatch": str(seen.generation)}
        if data is not None:
            return Seen(data, _client().put_object(**_named(path), Body=data, **condition)["ETag"])
        if seen.data is not None:
            _client().delete_object(**_named(path), **condition)
        return Seen(None)

    def is_refusal(self, error: Exception) -> bool:
        return code_of(error) in CHANGED

    def fenced(self, data: bytes) -> bytes:
        """With other white space at the end, which JSON ignores: the same bytes would keep the ETag, a hash."""
        return data.rstrip() + "".join(secrets.choice(" \t\n") for _ in range(40)).encode()


def _named(path: str) -> dict[str, str]:
    return dict(zip(("Bucket", "Key"), split_object(path), strict=True))


def _get(path: str, **condition: str) -> tuple[bytes, str]:
    """An object's bytes and ETag. A body that is cut or damaged is requested again, as everything is by `_after`."""
    from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError

    begun = time.monotonic()
    while True:
        answer = _client().get_object(**_named(path), **condition)
        try:
            return answer["Body"].read(), answer["ETag"]
        except (FlexibleChecksumError, HTTPClientError, IncompleteReadError) as error:
            OUTAGE.failed(path, failure(error), begun)
