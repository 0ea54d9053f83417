"""Puts a process's temporary files in a folder of its own, which the next command removes if the process was killed.

Libraries leave files in the system's temporary folder: TensorFlow the code that it generates and a copy of each file
that it writes to a bucket, Beam a folder for each pipeline. So commands, and calls from Python, have TMPDIR name a
folder of their own in there, `millrace.` and eight characters, which is removed when the process ends. Each process
that uses it, such as a command that another one starts, holds a shared lock on it, which ends with the process, however
that ends. A folder that nobody has locked was left by a killed process.
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
_LONGEST = 74  # of a folder in which Python can make its sockets, whose paths have 107 bytes at most
_LAST = -200  # among the finalizers of multiprocessing, which removes a folder of its own from this one at -100


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Has temporary files made in this process's own folder in the block. It stays until the process ends.

    It is the folder of the process that started this one, if that has one. Where none can be made, temporary files are
    where the system has them.
    """
    try:
        system = tempfile.gettempdir()
    except FileNotFoundError:  # there is no folder that can be written to
        yield
        return
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
    tempfile.tempdir = folder  # private: documented, and else what `gettempdir` has found before
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
    """The process's own folder, made at the first call; None where there can be none."""
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
        if os.path.isdir(folder):  # the file system has no locks; else another process was quicker, and removed it
            os.rmdir(folder)
            return None


@functools.cache
def _use(folder: str, process: int) -> bool:
    """Locks a folder until the process ends, and has it removed then. False where it cannot be locked."""
    handle = _locked(folder, shared=True)
    if handle is None or not os.path.isdir(folder):
        return False

    def leave() -> None:
        os.close(handle)
        _remove_unused(folder)

    Finalize(None, leave, exitpriority=_LAST)  # a fork of this process does not call it
    return True


def _remove_unused(folder: str) -> None:
    """Removes a folder that no process uses."""
    handle = _locked(folder, shared=False)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked(folder: str, *, shared: bool) -> int | None:
    """A handle that locks a folder of this user, until it is closed; None where that cannot be."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # a link, another user's, or gone
        return None
    with contextlib.suppress(OSError):  # the file system has no locks
        if os.fstat(handle).st_uid == os.getuid() and lock(handle, shared=shared, wait=shared):
            return handle
    os.close(handle)
    return None
