"""Puts the temporary files of a process in a folder of its own, and removes folders that killed processes left behind.

Libraries leave files in the system's temporary folder. TensorFlow leaves the code that it generates and a copy of each
file that it writes to a bucket, and Beam leaves a folder for each pipeline. So commands, and calls from Python, set
TMPDIR to a folder of their own in the system's one. The name of this folder is `millrace.` and eight characters. The
folder is removed when the process ends.

A process that is killed cannot remove its folder. So each process that uses the folder, also one that a command starts,
holds a shared lock on it. The system ends the lock with the process. A folder that nobody has locked was left by a
killed process, and the next command removes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.util import Finalize

from schemas.storage.local import lock

_PREFIX = "millrace."
_NAME = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}")
_LONGEST = 74  # longest path of the folder: Python makes sockets in it, whose paths can have 107 bytes
_LAST = -200  # priority at exit: after multiprocessing removes its own folder from ours, which has priority -100


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Lets all temporary files of the block be made in a folder of this process.

    The folder stays until the process ends.

    If the process that started this one has such a folder, that folder is used. If no folder can be made, temporary
    files are made where the system has them.
    """
    try:
        system = tempfile.gettempdir()
    except FileNotFoundError:  # no temporary folder can be written to
        yield
        return
    # TMPDIR is already the folder of the process that started this one: use it too, and lock it.
    if _NAME.fullmatch(os.path.basename(system)):
        _use(system, os.getpid())
        yield
        return
    folder = _folder_in(system, os.getpid())
    if folder is not None and not os.path.isdir(folder):  # somebody has cleared the system's folder
        _folder_in.cache_clear()
        folder = _folder_in(system, os.getpid())
    if folder is None:
        yield
        return
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = folder  # documented; without this, `gettempdir` returns the folder that it found before
    try:
        yield
    finally:
        tempfile.tempdir = system  # private: the same
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@functools.cache
def _folder_in(system: str, process: int) -> str | None:
    """Returns the process's own folder in the system's one; None if it cannot be made.

    The first call makes the folder, after removing the folders of killed processes.
    """
    if len(os.path.join(system, _PREFIX)) + 8 > _LONGEST:
        return None
    with contextlib.suppress(OSError), os.scandir(system) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                _remove_unused(entry.path)
    while True:
        try:
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir=system)
        except OSError:
            return None
        if _use(folder, process):
            return folder
        # Either the file system has no locks, or another process removed the new folder before we locked it: try again.
        if os.path.isdir(folder):
            os.rmdir(folder)
            return None


@functools.cache
def _use(folder: str, process: int) -> bool:
    """Locks a folder until the process ends, when the folder is removed. Returns False if it cannot be locked."""
    handle = _locked(folder, shared=True)
    if handle is None or not os.path.isdir(folder):
        return False

    def leave() -> None:
        os.close(handle)
        _remove_unused(folder)

    # `atexit` would run in a process that is forked from this one, too, and remove the folder.
    Finalize(None, leave, exitpriority=_LAST)  # a fork of this process does not call it
    return True


def _remove_unused(folder: str) -> None:
    """Removes a folder if no process has locked it."""
    handle = _locked(folder, shared=False)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked(folder: str, *, shared: bool) -> int | None:
    """Locks a folder of this user, and returns the handle that holds the lock; None if that is impossible.

    The lock lasts until the handle is closed.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # the folder is a link, belongs to another user, or is gone
        return None
    with contextlib.suppress(OSError):  # raised if the file system has no locks
        if os.fstat(handle).st_uid == os.getuid() and lock(handle, shared=shared, wait=shared):
            return handle
    os.close(handle)
    return None
