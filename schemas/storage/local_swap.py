"""Compare and swap on local disk, without locks, because a stopped process would keep its lock.

A swap writes a pending file next to the file, compares, renames the pending file, and removes all other pending files
(the fence). Another process that compared before that rename has already written its pending file. It finds this file
gone when it renames, and compares again.
"""

from __future__ import annotations

import contextlib
import glob
import os

from schemas.storage import disk
from schemas.storage.store import Changed, Seen


def look(path: str) -> Seen:
    """The file's current bytes. A link is refused."""
    try:
        with open(path, "rb", opener=disk.open_own) as file:
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
        pass  # a fence removed the pending file, after another swap or late: compare again
    disk.sync_folder(os.path.dirname(path) or ".")
    fence(path)
    # Of two swaps that compared before either renamed, the later one stays. With `unless` there is only one.
    if unless is None and look(path).data != data:
        raise Changed(path)
    return Seen(data)


def fence(path: str) -> None:
    """Removes all pending files, so that their swaps must compare again."""
    folder, name = os.path.dirname(path) or ".", os.path.basename(path)
    for pending in glob.glob(f"{glob.escape(folder)}/.{glob.escape(name)}.*.tmp"):
        disk.delete(pending)


def _renamed(path: str, data: bytes, seen: Seen, unless: tuple[str, Seen] | None) -> bool:
    """Writes the pending file, compares, renames. Returns False if the pending file was removed in between."""
    pending = disk.temporary_for(path)
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
            return look(path).data == data  # a network file system repeated a rename whose answer was lost
    except BaseException:
        disk.delete(pending)
        raise
    return True


def _remove(path: str, seen: Seen) -> Seen:
    """Removes the file. A file that replaced it after the comparison is put back."""
    _expect((path, seen))
    if seen.data is None:
        return seen
    aside = disk.temporary_for(path)
    try:
        os.rename(path, aside)
    except FileNotFoundError as error:
        raise Changed(path) from error
    try:
        if look(aside) != seen:
            with contextlib.suppress(OSError):  # there is a newer file, or links do not work: its writer finds it gone
                os.link(aside, path)
            raise Changed(path)
    finally:
        disk.delete(aside)
    return Seen(None)


def _expect(file: tuple[str, Seen] | None) -> None:
    if file is not None and look(file[0]) != file[1]:
        raise Changed(file[0])
