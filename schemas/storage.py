"""Files by path, on local disk and on Google Cloud Storage, behind a few small functions."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import glob
import os
import re
import sys
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, BinaryIO, cast

from schemas.errors import MillraceError, UsageError
from schemas.redact import redacted

GCS = "gs://"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAGIC = frozenset("*?[")
_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)
_DOWNLOAD_BYTES = 1 << 20  # the least that is fetched at once


@dataclasses.dataclass(frozen=True)
class FileStat:
    """A file's size in bytes and its version: the mtime in nanoseconds, or the object's generation."""

    size: int
    version: str


def few(lines: Sequence[str]) -> list[str]:
    """Five at most, and how many more there are."""
    return [*lines[:5], *([f"and {len(lines) - 5:,} more"] if len(lines) > 5 else [])]


def say(lines: Sequence[str]) -> None:
    """Tells a user what is worth knowing and no error, on standard error."""
    for line in few(lines):
        print(line, file=sys.stderr, flush=True)


def say_once(again: Sequence[tuple[str, str]]) -> None:
    """Tells of files that are named more than once; see `expand`."""
    say([told_once(kept, path) for kept, path in again])


def expand(patterns: Sequence[str], *, again: Callable[[Sequence[tuple[str, str]]], None] = say_once) -> list[str]:
    """The files that paths and globs name: sorted, each file once, under the path that was given first.

    Args:
      patterns: paths and globs.
      again: is called where files are named more than once, with the path that each is read under, and the other one.

    Raises:
      UsageError: a path that does not exist, a glob that matches no file, or no pattern at all.
    """
    if not patterns:
        raise UsageError("no input was given: name at least one file or glob")
    first: dict[Hashable, str] = {}
    twice: dict[tuple[str, str], None] = {}
    for pattern in patterns:
        check_scheme(pattern)
        if pattern.startswith(GCS):
            matches = _expand_gcs(pattern)
        elif os.path.exists(pattern):  # also a name that happens to hold a glob's signs
            matches = [pattern]
        else:
            # Also links that lead nowhere, and pipes: their reader says so, where leaving them out would be silent.
            matches = [p for p in glob.glob(pattern, recursive=True) if not os.path.isdir(p)]
        if not matches and not _MAGIC & set(pattern):
            raise UsageError(f"{pattern}: no such file")
        if not matches:
            raise UsageError(f"{pattern}: no file matches this glob")
        for path in sorted(matches):
            key = identity(path)
            if key in first:
                twice[first[key], path] = None
            else:
                first[key] = path
    if twice:
        again(list(twice))
    return sorted(first.values())


def identity(path: str) -> Hashable:
    """What two paths of one file share: of a local file device and inode, links followed; on GCS bucket and name.

    A file that is not there has its path's.

    Raises:
      UsageError: a folder.
    """
    if path.startswith(GCS):
        return path
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    if S_ISDIR(found.st_mode):
        globs = f"{join(path, '*.csv')}, or {join(path, '*/*')} for images in folders"
        raise UsageError(f"{path}: is a folder; name files, or a glob such as {globs}")
    # Some network file systems number no files.
    return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)


def told_once(kept: str, path: str) -> str:
    """What is said of a file that is named again."""
    if kept == path:
        return f"{path} is named more than once; it is read once"
    return f"{kept} and {path} are one file; it is read once"


def check_scheme(path: str, where: str = "") -> None:
    """UsageError for an address of another store, such as s3://; `where` stands before it in the message."""
    if _SCHEME.match(path) and not path.startswith(GCS):
        raise UsageError(
            f"{where}{path}: local paths and {GCS} are read and written; copy what is elsewhere to one of them"
        )


def stat(path: str) -> FileStat:
    """A file's size and version; MillraceError if it cannot be read."""
    with naming(path):
        if path.startswith(GCS):
            blob = _existing_blob(path)
            return FileStat(int(blob.size), str(blob.generation))
        found = os.stat(path)
    check_regular(path, found.st_mode)
    return FileStat(found.st_size, str(found.st_mtime_ns))


def open_read(path: str, *, version: str | None = None) -> BinaryIO:
    """A seekable binary file; where `version` is given, of that very version.

    Raises:
        MillraceError: the file cannot be opened, or has another version by now.
    """
    with naming(path):
        if path.startswith(GCS):
            blob = _existing_blob(path)
            check_version(path, version, str(blob.generation))
            return cast(BinaryIO, _blob(path, generation=blob.generation).open("rb", chunk_size=_DOWNLOAD_BYTES))
        file = open(path, "rb", opener=open_at_once)  # noqa: SIM115 - the caller closes it
    try:
        found = os.fstat(file.fileno())
        check_regular(path, found.st_mode)
        check_version(path, version, str(found.st_mtime_ns))
    except MillraceError:
        file.close()
        raise
    return file


def read_bytes(path: str) -> bytes:
    """The whole file as it was at one moment, also while another process replaces it.

    Raises:
        MillraceError: the file cannot be read.
    """
    if path.startswith(GCS):
        with naming(path):
            return cast(bytes, _blob(path).download_as_bytes())  # one request: no generation can go in between
    with naming(path), open_read(path) as file:
        return file.read()


def write_bytes(path: str, data: bytes) -> None:
    """Puts a whole file in one step: readers see the old content or the new, never a part.

    Local disk: a temporary file in the same folder, flushed to disk, then renamed. GCS: one upload.
    """
    with naming(path):
        if path.startswith(GCS):
            _blob(path).upload_from_string(data, content_type="application/octet-stream")
            return
        check_output(path)
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, exist_ok=True)
        temporary = join(folder, f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        sync_folder(folder)


def exists(path: str) -> bool:
    """Whether there is a file or a folder of this name."""
    if not path.startswith(GCS):
        return os.path.exists(path)
    with naming(path):
        return bool(_blob(path).exists()) or bool(listdir(path))


def join(path: str, *parts: str) -> str:
    """Path and parts with one slash between; a part never replaces what stands before it."""
    tail = "/".join(stripped for part in parts if (stripped := part.strip("/")))
    return path + tail if not path or not tail or path.endswith("/") else f"{path}/{tail}"


def listdir(path: str) -> list[str]:
    """The names in a folder, sorted; empty where there is no such folder."""
    with naming(path):
        if path.startswith(GCS):
            bucket, prefix = _split(path.rstrip("/") + "/")
            listing = _client().list_blobs(bucket, prefix=prefix, delimiter="/")
            names = {blob.name[len(prefix) :] for blob in listing}
            return sorted(n for n in names | {p[len(prefix) :].rstrip("/") for p in listing.prefixes} if n)
        return sorted(os.listdir(path)) if os.path.isdir(path) else []


def delete(path: str) -> None:
    """Removes a file; it is no error if there is none."""
    with naming(path), contextlib.suppress(FileNotFoundError):
        if path.startswith(GCS):
            with contextlib.suppress(google_error("NotFound")):
                _blob(path).delete()
            return
        os.unlink(path)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Turns what goes wrong with a file, on disk or in the cloud, into a MillraceError that names it."""
    try:
        yield
    except OSError as error:
        raise MillraceError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        if type(error).__module__.startswith("google."):  # not imported unless gs:// is used
            if isinstance(error, google_error("NotFound")):
                raise MillraceError(f"{path}: no such object or bucket, or it was replaced meanwhile") from error
            raise MillraceError(f"{path}: {redacted(str(error))}") from error
        raise


def google_error(name: str) -> type[Exception]:
    """A class of `google.api_core.exceptions`, imported only by those who use gs://."""
    from google.api_core import exceptions

    return cast(type[Exception], getattr(exceptions, name))


def check_version(path: str, expected: str | None, found: str) -> None:
    """MillraceError unless the version found is the expected one; None: any will do."""
    if expected is not None and expected != found:
        raise MillraceError(
            f"{path}: changed while it was being read (version {found}, expected {expected}); start again"
        )


def check_output(path: str, *, hint: str = "") -> None:
    """Refuses to write a file over what is none. A file is put in one rename, which would replace the thing itself.

    Args:
      path: where a file is to be put.
      hint: what else to do, for the message.

    Raises:
      UsageError: a folder, a link, a pipe or a device stands there.
    """
    if path.startswith(GCS):
        return
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not S_ISREG(mode):
        what = "a folder" if S_ISDIR(mode) else "a link" if S_ISLNK(mode) else "a pipe, a socket or a device"
        raise UsageError(f"{path}: is {what}, which a file would replace; name a file{hint}")


def open_at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def check_regular(path: str, mode: int) -> None:
    """MillraceError for what is no file by its mode."""
    if not S_ISREG(mode):
        raise MillraceError(f"{path}: is no file but a folder, a pipe or a device, and cannot be read as one")


def sync_folder(folder: str) -> None:
    """Makes the names in a local folder survive a power cut, where the system lets one: some network disks do not."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


@functools.cache
def _client() -> Any:
    from google.cloud import storage as gcs  # imported here: only those who use gs:// wait for it

    return gcs.Client()


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = path[len(GCS) :].partition("/")
    if not bucket:
        raise UsageError(f"{path}: expected {GCS}bucket/name")
    return bucket, name


def _blob(path: str, generation: int | None = None) -> Any:
    bucket, name = _split(path)
    return _client().bucket(bucket).blob(name, generation=generation)


def _existing_blob(path: str) -> Any:
    bucket, name = _split(path)
    blob = _client().bucket(bucket).get_blob(name)
    if blob is None:
        raise MillraceError(f"{path}: no such object")
    return blob


def _expand_gcs(pattern: str) -> list[str]:
    bucket, name = _split(pattern)
    with naming(pattern):
        if _blob(pattern).exists():
            return [pattern]
        blobs = _client().list_blobs(bucket, match_glob=name) if _MAGIC & set(name) else ()
        return [f"{GCS}{bucket}/{blob.name}" for blob in blobs if not blob.name.endswith("/")]
