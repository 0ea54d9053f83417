"""Compare and swap: a file is replaced, or removed, only while it is what it was when it was looked at.

Two jobs that write to one place never both believe that they did: of two swaps that begin with the same look, one
fails. On GCS the object's generation is the condition, and the server decides. On local disk the bytes are compared
under a lock on the folder (flock: it ends with its process, however that ends).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import glob
import os
import time
from collections.abc import Iterator
from typing import Any

from schemas import storage
from schemas.errors import MillraceError

_LOCK_SECONDS = 30.0  # a swap takes milliseconds; who holds the lock longer was stopped in the middle of one
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)  # what network file systems answer


class Changed(MillraceError):
    """The file is not what it was when it was looked at."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A file as it was seen: its bytes, None where there was none, and on GCS its generation."""

    data: bytes | None
    generation: int = 0


def look(path: str) -> Seen:
    """The file's present bytes, and what a swap compares with."""
    with storage.naming(path):
        if path.startswith(storage.GCS):
            blob = storage._blob(path)
            try:
                data = blob.download_as_bytes()
            except _google("NotFound"):
                return Seen(None)
            return Seen(data, int(blob.generation))
        try:
            with open(path, "rb") as file:
                return Seen(file.read())
        except FileNotFoundError:
            return Seen(None)


def swap(path: str, data: bytes | None, seen: Seen, *, unless: tuple[str, Seen] | None = None) -> Seen:
    """Puts a whole file where `seen` was seen, or removes it.

    Args:
      path: the file.
      data: its new bytes; None removes it.
      seen: what `look`, or the swap before, returned.
      unless: another file of the same folder, and as what it was seen: where it is something else by now, nothing is
        done. On GCS it is looked at just before; on local disk both are one step.

    Returns:
      The file as it is now, for the next swap.

    Raises:
      Changed: one of the two is not as it was seen; nothing was done.
      MillraceError: the file cannot be written.
    """
    if path.startswith(storage.GCS):
        _expect(unless)
        return _swap_gcs(path, data, seen)
    with storage.naming(path), _locked(os.path.dirname(path) or "."):
        _expect(unless)
        _expect((path, seen))
        # Written under the lock alone: what is left of a put was left by a process that was killed.
        for stray in glob.glob(f"{glob.escape(os.path.dirname(path) or '.')}/.{os.path.basename(path)}.*.tmp"):
            storage.delete(stray)
        if data is None:
            storage.delete(path)
        else:
            storage.write_bytes(path, data)
    return Seen(data)


def _expect(file: tuple[str, Seen] | None) -> None:
    if file is not None and look(file[0]) != file[1]:
        raise Changed(f"{file[0]}: was changed by another process")


def _swap_gcs(path: str, data: bytes | None, seen: Seen) -> Seen:
    blob = storage._blob(path)
    with storage.naming(path):
        try:
            if data is None:
                blob.delete(if_generation_match=seen.generation)
                return Seen(None)
            blob.upload_from_string(data, content_type="application/octet-stream", if_generation_match=seen.generation)
            return Seen(data, int(blob.generation))
        except (_google("PreconditionFailed"), _google("NotFound")) as error:
            now = look(path)
            if now.data == data:  # the client sent it twice: the first answer was lost on its way
                return now
            raise Changed(f"{path}: was changed by another process") from error


def _google(name: str) -> Any:
    from google.api_core import exceptions  # imported here: only those who use gs:// wait for it

    return getattr(exceptions, name)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Holds the folder's lock; goes on without it where the file system has none, with the comparison alone."""
    os.makedirs(folder, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise MillraceError(
                        f"{folder}: another process has kept it locked for {_LOCK_SECONDS:g} s; is one stopped?"
                    ) from error
                time.sleep(0.01)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break
        yield
    finally:
        os.close(handle)
