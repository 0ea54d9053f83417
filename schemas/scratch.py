"""The temporary files of a process: in a folder of its own, which the next one removes if the process was killed.

Libraries leave files in the system's temporary folder: TensorFlow the code that it generates and a copy of each file
that it writes to a bucket, Beam a folder for each pipeline. So commands, and calls from Python, have TMPDIR name a
folder of their own in there, `millrace.` and eight characters, which is removed when the process ends. Its process, and
each command that this one starts, holds a shared lock on it (`flock`), which ends with them, however they end. A folder
that nobody has locked was left by a killed process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.util import Finalize

_PREFIX = "millrace."
_OURS = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}")
_LONGEST = 74  # of a folder in which Python can make its sockets, whose paths have 107 bytes at most
_LAST = -200  # among the finalizers of multiprocessing, which removes a folder of its own from this one at -100

_used: dict[str, int] = {}  # the folders that this process has locked, and the handles of the locks


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """In the block, temporary files are in this process's own folder, which stays until the process ends.

    It is the folder of the process that started this one, if that has one. Where none can be made, temporary files are
    where the system has them.
    """
    try:
        system = tempfile.gettempdir()
    except FileNotFoundError:  # there is no folder that can be written to
        yield
        return
    if _OURS.fullmatch(os.path.basename(system)):
        if system not in _used:
            _use(system)
        yield
        return
    own_folders = (folder for folder in _used if os.path.dirname(folder) == system and os.path.isdir(folder))
    folder = next(own_folders, None) or _made(system)
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


def _made(system: str) -> str | None:
    """A new folder for this user alone; None if there can be none."""
    _remove_dead(system)
    while True:
        if len(os.path.join(system, _PREFIX)) + 8 > _LONGEST:
            return None
        try:
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir=system)
        except OSError:
            return None
        if _use(folder):
            return folder
        if os.path.isdir(folder):  # the file system has no locks
            os.rmdir(folder)
            return None


def _use(folder: str) -> bool:
    """Locks a folder until this process ends, and has it removed then. False if another process has removed it."""
    handle = _locked(folder, fcntl.LOCK_SH)
    if handle is None or not os.path.isdir(folder):
        return False
    _used[folder] = handle
    Finalize(None, _leave, (folder, handle), exitpriority=_LAST)
    return True


def _leave(folder: str, handle: int) -> None:
    """Removes a folder at the end of the process that used it, which no fork of it does, unless others still do."""
    os.close(handle)
    _remove(folder)


def _remove_dead(system: str) -> None:
    """Removes the folders of this user's killed processes."""
    with contextlib.suppress(OSError), os.scandir(system) as entries:
        for entry in entries:
            if _OURS.fullmatch(entry.name):
                _remove(entry.path)


def _remove(folder: str) -> None:
    """Removes a folder, unless somebody has locked it."""
    handle = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked(folder: str, lock: int) -> int | None:
    """A handle that locks a folder of this user, until it is closed; None where that cannot be."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # a link, another user's, or gone
        return None
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, lock)
            return handle
    except OSError:  # others use it, or the file system has no locks
        pass
    os.close(handle)
    return None
