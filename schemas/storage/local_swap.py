"""Compare and swap on local disk, where nothing is locked: a process that is stopped would keep its lock.

A swap writes a pending file beside the file, compares, renames the pending file, and removes all others' pending files
(the fence). Who compared before that rename has its pending file by then, finds it gone when it renames, and compares
again.
"""

from __future__ import annotations

import contextlib
import glob
import os
import uuid

from schemas.storage import disk
from schemas.storage.store import Changed, Seen


def look(path: str) -> Seen:
    """The file's present bytes."""
    try:
        with open(path, "rb", opener=disk.open_at_once) as file:
            disk.check_regular(path, os.fstat(file.fileno()).st_mode)
            return Seen(file.read())
    except FileNotFoundError:
        return Seen(None)


def swap(path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
    """See `schemas.storage.compare_and_swap.swap`."""
    if data is None:
        return _remove(path, seen)
    disk.make_folder(os.path.dirname(path) or ".")
    while not _renamed(path, data, seen, unless):
        pass  # another's fence took the pending file: either it changed what is compared, or it came late
    disk.sync_folder(os.path.dirname(path) or ".")
    fence(path)
    # Of two that compared before either renamed, the later one's stays. Under `unless` there are no two.
    if unless is None and look(path).data != data:
        raise Changed(path)
    return Seen(data)


def fence(path: str) -> None:
    """Removes all pending files, and with them what was compared before."""
    folder, name = os.path.dirname(path) or ".", os.path.basename(path)
    for pending in glob.glob(f"{glob.escape(folder)}/.{glob.escape(name)}.*.tmp"):
        disk.delete(pending)


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
        disk.delete(pending)
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
        raise Changed(path) from error
    try:
        if look(aside) != seen:
            with contextlib.suppress(OSError):  # there is a newer one, or no way to do it: whose it is finds it gone
                os.link(aside, path)
            raise Changed(path)
    finally:
        disk.delete(aside)
    return Seen(None)


def _pending(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")


def _expect(file: tuple[str, Seen] | None) -> None:
    if file is not None and look(file[0]) != file[1]:
        raise Changed(file[0])
