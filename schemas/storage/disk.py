"""Small steps on local disk, each of which survives a power cut once it has returned."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from stat import S_ISDIR, S_ISLNK, S_ISREG

from schemas.errors import MillraceError, UsageError

_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def write(path: str, data: bytes) -> None:
    """Puts a whole file: a temporary one in the same folder, flushed to disk, then renamed."""
    check_output(path)
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
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


def delete(path: str) -> None:
    """Removes a file; it is no error if there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def make_folder(path: str) -> None:
    """Makes a folder and those above it, to stay there through a power cut."""
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
    """Refuses to write a file over what is none. A file is put in one rename, which would replace the thing itself.

    Args:
      path: where a file is to be put.
      hint: what else to do, for the message.

    Raises:
      UsageError: a folder, a link, a pipe or a device stands there.
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


def check_regular(path: str, mode: int) -> None:
    """MillraceError for what is no file by its mode."""
    if not S_ISREG(mode):
        raise MillraceError(f"{path}: is a folder, a pipe or a device; expected a file")


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
