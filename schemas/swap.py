"""Compare and swap: a file is replaced, or removed, only while it is what it was when it was looked at.

Two jobs that write to one place never both believe that they did: of two swaps that begin with the same look, one
fails, however long a process is stopped between any two of its steps. On GCS the object's generation is the condition,
and the server decides.

On local disk nothing is locked: a process that is stopped while it holds a lock keeps all others waiting. A swap writes
a pending file beside the file, compares, renames the pending file, and removes all others' pending files (the fence).
Who compared before that rename has its pending file by then, finds it gone when it renames, and compares again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import uuid

from schemas import folders, storage
from schemas.errors import MillraceError


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
            except storage.google_error("NotFound"):
                return Seen(None)
            return Seen(data, int(blob.generation))
        try:
            with open(path, "rb", opener=storage.open_at_once) as file:
                storage.check_regular(path, os.fstat(file.fileno()).st_mode)
                return Seen(file.read())
        except FileNotFoundError:
            return Seen(None)


def swap(path: str, data: bytes | None, seen: Seen, *, unless: tuple[str, Seen] | None = None) -> Seen:
    """Puts a whole file where `seen` was seen, or removes it.

    Args:
      path: the file.
      data: its new bytes; None removes it.
      seen: what `look`, or the swap before, returned.
      unless: another file, and as what it was seen: where it is something else by now, nothing is done. Who changes
        that file calls `fence` for this one before it looks at it, so that a swap which has compared both already
        is done by then or fails.

    Returns:
      The file as it is now, for the next swap.

    Raises:
      Changed: one of the two is not as it was seen; nothing was done.
      MillraceError: the file cannot be written.
    """
    if path.startswith(storage.GCS):
        _expect(unless)
        return _swap_gcs(path, data, seen)
    with storage.naming(path):
        if data is None:
            return _remove(path, seen)
        folders.make(os.path.dirname(path) or ".")
        while not _renamed(path, data, seen, unless):
            pass  # another's fence took the pending file: either it changed what is compared, or it came late
        storage.sync_folder(os.path.dirname(path) or ".")
        fence(path)
        # Of two that compared before either renamed, the later one's stays. Under `unless` there are no two.
        if unless is None and look(path).data != data:
            raise _changed(path)
    return Seen(data)


def fence(path: str) -> None:
    """From here on no swap succeeds that compared earlier: it finds out that it has to compare again."""
    if path.startswith(storage.GCS):
        seen = look(path)
        if seen.data is not None:
            with contextlib.suppress(Changed):  # by such a swap, which was quicker
                _swap_gcs(path, seen.data, seen)  # the same bytes, and another generation
        return
    for pending in glob.glob(
        f"{glob.escape(os.path.dirname(path) or '.')}/.{glob.escape(os.path.basename(path))}.*.tmp"
    ):
        storage.delete(pending)


def _renamed(path: str, data: bytes, seen: Seen, unless: tuple[str, Seen] | None) -> bool:
    """Writes the pending file, compares, renames; False where the pending file was taken away in between."""
    pending = _pending(path)
    try:
        with open(pending, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _expect(unless)
        _expect((path, seen))
        try:
            os.replace(pending, path)
        except FileNotFoundError:
            return look(path).data == data  # a network file system asked twice: the first answer was lost on its way
    except BaseException:
        storage.delete(pending)
        raise
    return True


def _remove(path: str, seen: Seen) -> Seen:
    """Removes the file; one that has come into its place since it was compared is put back."""
    _expect((path, seen))
    if seen.data is None:
        return seen
    aside = _pending(path)
    try:
        os.rename(path, aside)
    except FileNotFoundError as error:
        raise _changed(path) from error
    try:
        if look(aside) != seen:
            with contextlib.suppress(OSError):  # there is a newer one, or no way to do it: whose it is finds it gone
                os.link(aside, path)
            raise _changed(path)
    finally:
        storage.delete(aside)
    return Seen(None)


def _pending(path: str) -> str:
    return storage.join(os.path.dirname(path), f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")


def _expect(file: tuple[str, Seen] | None) -> None:
    if file is not None and look(file[0]) != file[1]:
        raise _changed(file[0])


def _changed(path: str) -> Changed:
    return Changed(f"{path}: was changed by another process")


def _swap_gcs(path: str, data: bytes | None, seen: Seen) -> Seen:
    with storage.naming(path):
        blob = storage._blob(path)
        try:
            if data is None:
                blob.delete(if_generation_match=seen.generation)
                return Seen(None)
            blob.upload_from_string(data, content_type="application/octet-stream", if_generation_match=seen.generation)
            return Seen(data, int(blob.generation))
        except (storage.google_error("PreconditionFailed"), storage.google_error("NotFound")) as error:
            now = look(path)
            if now.data == data:  # the client sent it twice: the first answer was lost on its way
                return now
            raise _changed(path) from error
