"""Reads and writes files by path, on any store. All other code uses these functions, and no store itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from schemas.concurrency import in_threads
from schemas.errors import MillraceError, UsageError
from schemas.storage import local
from schemas.storage.gcs import PREFIX as GCS
from schemas.storage.gcs import GcsStore
from schemas.storage.local import LocalStore
from schemas.storage.store import FileStat

# The stores have the same methods. These methods raise errors of the system or of the client library. `explain` turns
# such an error into one line without secrets, and returns None for any other error. What each method does is described
# at the function that calls it, here, in `schemas.storage.folders` or in `schemas.storage.listing`.
Store = LocalStore | GcsStore

_LOCAL = LocalStore()
_STORES: dict[str, Store] = {GCS: GcsStore()}  # by prefix; all other paths are local
REMOTE_FILES = 16  # the number of files of a remote store that are worked on at once
A = TypeVar("A")
B = TypeVar("B")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MISSPELT = re.compile(r"gs:/+", re.IGNORECASE)
_S3 = re.compile(r"s3[an]?:/+", re.IGNORECASE)


def store_of(path: str) -> Store:
    """Returns the store that a path belongs to.

    Raises:
      UsageError: the path is a misspelt bucket URL, such as gs:/bucket or GS://bucket, or one of Amazon S3.
    """
    store = next((store for prefix, store in _STORES.items() if path.startswith(prefix)), None)
    if store is None and (match := _MISSPELT.match(path)):
        address = f"{GCS}{path[match.end() :]}"
        raise UsageError(f"{path}: not a bucket URL; did you mean {address}? (A local folder is ./{path})")
    if store is None and _S3.match(path):
        raise UsageError(
            f"{path}: Amazon S3 is not supported; use a local path or {GCS}. A bucket that is mounted as a folder is a "
            "local path (docs/cloud.md)"
        )
    return store or _LOCAL


def is_local(path: str) -> bool:
    """Returns whether a path is on local disk."""
    return store_of(path) is _LOCAL


@contextlib.contextmanager
def wrap_errors(path: str) -> Iterator[None]:
    """Turns errors of a store in the block into a MillraceError that names the file.

    All stores are asked to explain the error, because a copy between two stores may fail on either side.
    """
    try:
        yield
    except Exception as error:
        # The local disk last: errors of network libraries are errors of the system, too.
        explained = [store.explain(error) for store in (*_STORES.values(), _LOCAL)]
        message = next((message for message in explained if message is not None), None)
        if message is None:
            raise
        raise MillraceError(f"{path}: {message}") from error


@contextlib.contextmanager
def wrap_listing(path: str) -> Iterator[None]:
    """Turns errors like `wrap_errors`, for a listing: raises a UsageError if the bucket does not exist."""
    try:
        with wrap_errors(path):
            yield
    except MillraceError as error:
        if error.__cause__ is not None and store_of(path).lacks_bucket(error.__cause__):
            raise UsageError(f"{path}: no such bucket") from error
        raise


def check_scheme(path: str, where: str = "") -> None:
    """Refuses a path of a store that is not supported, such as hdfs://.

    Args:
      path: the path.
      where: the beginning of the message, such as a flag with a space.

    Raises:
      UsageError: the store is not supported, or the address is misspelt.
    """
    try:
        local = is_local(path)
    except UsageError as error:
        raise UsageError(f"{where}{error}") from error
    if _SCHEME.match(path) and local:
        alternatives = " or ".join(("a local path", *_STORES))
        raise UsageError(f"{where}{path}: unsupported address; use {alternatives}, and copy other data there first")


def check_addresses(flag: str, paths: str | Sequence[str]) -> None:
    """Refuses paths of stores that are not supported, as `check_scheme` does.

    Args:
      flag: the flag that has the paths, for the message.
      paths: one path or several.
    """
    for path in (paths,) if isinstance(paths, str) else paths:
        check_scheme(path, f"{flag} ")


def stat(path: str) -> FileStat:
    """Returns a file's size and version.

    Raises:
      MillraceError: the file cannot be read.
    """
    with wrap_errors(path):
        return store_of(path).stat(path)


def open_read(path: str, *, version: str | None = None) -> BinaryIO:
    """Opens a seekable binary file.

    Args:
      path: the file.
      version: the version that the file must have, from `stat`; None accepts any version.

    Raises:
      MillraceError: the file cannot be opened, or has another version.
    """
    with wrap_errors(path):
        return store_of(path).open(path, version)


def read_bytes(path: str) -> bytes:
    """Returns the whole content of a file. If another process replaces the file meanwhile, it is all old or all new.

    Raises:
      MillraceError: the file cannot be read.
    """
    with wrap_errors(path):
        return store_of(path).read(path)


def read_chunks(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, a megabyte at a time.

    Raises:
        MillraceError: the file cannot be read.
    """
    with open_read(path) as file:
        while True:
            with wrap_errors(path):
                data = file.read(1 << 20)
            if not data:
                return
            yield data


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file in one step: readers see the old content or the new content, never a part.

    On local disk, a temporary file in the same folder is flushed to disk and renamed. On GCS, it is one upload.
    """
    with wrap_errors(path):
        store_of(path).write(path, data)


def exists(path: str) -> bool:
    """Returns whether there is a file or a folder of this name.

    Raises:
      UsageError: the bucket does not exist.
    """
    with wrap_listing(path):
        return store_of(path).exists(path)


def join(path: str, *parts: str) -> str:
    """Joins parts of a path with single slashes.

    Unlike in `os.path.join`, a part `/a` does not discard the parts before it.
    """
    tail = "/".join(stripped for part in parts if (stripped := part.strip("/")))
    return path + tail if not path or not tail or path.endswith("/") else f"{path}/{tail}"


def listdir(path: str) -> list[str]:
    """Returns the names in a folder, sorted; empty if there is no such folder.

    Raises:
      UsageError: the bucket does not exist.
    """
    with wrap_listing(path):
        return store_of(path).listdir(path)


def delete(path: str) -> None:
    """Removes a file, if it exists."""
    with wrap_errors(path):
        store_of(path).delete(path)


def for_each(path: str, function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Returns function(item) for each item, in order.

    Works in several threads if `path` is remote, as requests take long.
    """
    return in_threads(function, items, threads=1 if is_local(path) else REMOTE_FILES)


def check_output(path: str, *, hint: str = "", overwrite: bool = True) -> None:
    """Refuses an output path that cannot be written, before a long computation whose result belongs there.

    Args:
      path: the output path.
      hint: further advice for the end of the message.
      overwrite: whether an existing file may be replaced.

    Raises:
      UsageError: the path is a folder, a link, a pipe or a device; or an existing file that may not be replaced; or in
        a folder that cannot be created or written to.
    """
    if is_local(path):
        local.check_output(path, hint=hint)
        local.check_writable(path)
    if not overwrite and exists(path):
        raise UsageError(f"{path}: already exists; give --overwrite to replace it")
