"""Durable operations on local disk: once they return, their results survive a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from stat import S_ISDIR, S_ISLNK, S_ISREG

from schemas.errors import MillraceError, UsageError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def write(path: str, data: bytes) -> None:
    """Writes a file in one step: a temporary file in the same folder, flushed to disk, then renamed."""
    check_output(path)
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = temporary_for(path)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        delete(temporary)
        raise
    sync_folder(folder)


def temporary_for(path: str) -> str:
    """A new name beside a path, for the bytes that will get its name."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file's name is one of `temporary_for`."""
    return _TEMPORARY.fullmatch(name) is not None


def delete(path: str) -> None:
    """Removes a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def make_folder(path: str) -> None:
    """Creates a folder and its parents, durably."""
    made, above = [], os.path.abspath(path)
    while not os.path.isdir(above) and above != os.path.dirname(above):
        made.append(above)
        above = os.path.dirname(above)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise MillraceError(f"{path}: the folder cannot be created: {error.strerror}") from error
    for folder in made:
        sync_folder(os.path.dirname(folder))


def check_output(path: str, *, hint: str = "") -> None:
    """Refuses an output path that is not a regular file, because writing renames a file over it.

    Args:
      path: where a file is to be put.
      hint: what else to do, for the message.

    Raises:
      UsageError: the path is a folder, a link, a pipe or a device.
    """
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not S_ISREG(mode):
        what = "a folder" if S_ISDIR(mode) else "a link" if S_ISLNK(mode) else "a pipe, a socket or a device"
        raise UsageError(f"{path}: is {what}, which a file would replace; give a file name{hint}")


def open_at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_own(path: str, flags: int) -> int:
    """As `open_at_once`, but not through a link: of a file that only this package writes."""
    return open_at_once(path, flags | os.O_NOFOLLOW)


def check_regular(path: str, mode: int) -> None:
    """Raises MillraceError unless the mode is that of a regular file."""
    if not S_ISREG(mode):
        raise MillraceError(f"{path}: is a folder, a pipe or a device; expected a file")


def sync_folder(folder: str) -> None:
    """Flushes the names in a local folder to disk, if the file system allows it: some network disks do not."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise
