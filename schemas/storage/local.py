"""Reads and writes files on local disk, and on network disks that are mounted.

Once a durable operation returns, its result survives a power cut. The module also recognizes errors of a disk that
refuses writes: the disk is full, over a quota, read-only or broken, or limits the size of files.

Compare and swap uses no lock, because a stopped process would keep the lock. A swap has four steps:

1. Write a pending file, with the new bytes, next to the file.
2. Compare the file with its snapshot.
3. Rename the pending file to the file's name.
4. Remove all other pending files of this file (the fence).

Suppose that another process compared before our step 3. Its pending file then exists already, and our step 4 removes
it. The rename of the other process fails, so it starts again, and its comparison finds our change.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Hashable, Iterator, Sequence
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import IO, Any, BinaryIO

from schemas.errors import MillraceError, UsageError
from schemas.storage import globs
from schemas.storage.store import Changed, FileStat, Snapshot, check_version, folder_error, redacted

_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_REFUSED = re.compile("|".join(re.escape(os.strerror(code)) for code in _CODES))
# Parts of messages that TensorFlow (before) and Beam (after) add to the system's own message.
_ROUND = re.compile(r"^([\w.]+Error: |\{\{function_node \S+\}\} )+| \[while running '.*'\]$")


def refused_by_disk(message: str) -> str | None:
    """Returns the line of an error's message that says that the disk refuses a write; None for any other error.

    The texts of messages are compared, because C++ libraries pass on the system's message but not its error number.
    """
    line = next((line.strip() for line in message.splitlines() if _REFUSED.search(line)), None)
    return None if line is None else _ROUND.sub("", line)[:500]


TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp")  # names that `temporary_for` returns
_NOT_SYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def temporary_for(path: str) -> str:
    """Returns a new name in the folder of a file, under which the file's future bytes are written before the rename.

    The name of `a/b` is `a/.b.`, 32 hexadecimal digits, and `.tmp`.
    """
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")


def check_output(path: str, *, hint: str = "") -> None:
    """Refuses an output path that is not a regular file, because writing renames a file over it.

    Args:
      path: the output path. If nothing is there, it is accepted.
      hint: further advice for the end of the message.

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


def check_writable(path: str) -> None:
    """Refuses an output path in a folder where no file can be created.

    If the folder does not exist yet, the nearest existing folder above it is checked.

    Raises:
      UsageError: no file can be created in the folder.
    """
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{path}: {folder} is not a writable folder ({error.strerror}); choose another") from error


def open_at_once(path: str, flags: int) -> int:
    """Opens a file without waiting; a plain open of a pipe would wait for a process that writes to it.

    The arguments are those of an `opener` of the function `open`.
    """
    return os.open(path, flags | os.O_NONBLOCK)


def open_own(path: str, flags: int) -> int:
    """Opens a file that only this package writes, without waiting. Fails if the path is a link."""
    return open_at_once(path, flags | os.O_NOFOLLOW)


def check_regular(path: str, mode: int) -> None:
    """Raises MillraceError unless the mode is that of a regular file."""
    if not S_ISREG(mode):
        raise MillraceError(f"{path}: is a folder, a pipe or a device; expected a file")


def lock(file: int | IO[Any], *, shared: bool = False, wait: bool = True) -> bool:
    """Locks an open file with `flock`, until the file is closed or the process ends, even if it is killed.

    Args:
      file: an open file, or its descriptor.
      shared: take a shared lock, which several processes can hold at the same time.
      wait: wait until the other processes release their locks.

    Returns:
      Whether the file was locked. False only if `wait` is False and another process holds a lock.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def sync_folder(folder: str) -> None:
    """Flushes the names in a local folder to disk.

    Does nothing on file systems that do not allow it, as some network disks.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


class LocalStore:
    """The store of local paths."""

    def explain(self, error: Exception) -> str | None:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            return "is a link; expected a file. Replace the link with the original"
        return (error.strerror or redacted(str(error))) if isinstance(error, OSError) else None

    def lacks_bucket(self, error: BaseException) -> bool:
        return False

    def stat(self, path: str) -> FileStat:
        file_stat = os.stat(path)
        check_regular(path, file_stat.st_mode)
        return FileStat(file_stat.st_size, str(file_stat.st_mtime_ns))

    def open(self, path: str, version: str | None) -> BinaryIO:
        file = open(path, "rb", opener=open_at_once)  # noqa: SIM115 - the caller closes it
        try:
            file_stat = os.fstat(file.fileno())
            check_regular(path, file_stat.st_mode)
            check_version(path, version, str(file_stat.st_mtime_ns))
        except MillraceError:
            file.close()
            raise
        return file

    def read(self, path: str) -> bytes:
        with self.open(path, None) as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file in one step: a temporary file in the same folder, flushed to disk, then renamed."""
        check_output(path)
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, exist_ok=True)
        with self._pending(path, data) as temporary:
            os.replace(temporary, path)
        sync_folder(folder)

    def delete(self, path: str) -> None:
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat | None, Hashable]]:
        if os.path.lexists(pattern):  # also a folder, which `identity` refuses
            yield _looked_at(pattern, self.identity(pattern))
            return
        # Also dangling links, and pipes: their reader reports them, instead of silently leaving them out.
        paths = glob.iglob(pattern, recursive=True) if "**" in pattern else _scan(pattern)
        for path in paths:
            if not os.path.isdir(path):
                yield _looked_at(path, self.identity(path))

    def identity(self, path: str) -> Hashable:
        """Returns the device and inode of a file, links followed; the resolved path if there is no file."""
        try:
            file_stat = os.stat(path)
        except (OSError, ValueError):
            return os.path.realpath(path)
        if S_ISDIR(file_stat.st_mode):
            raise folder_error(path)
        # Some network file systems have no inode numbers.
        return (file_stat.st_dev, file_stat.st_ino) if file_stat.st_ino else os.path.realpath(path)

    def make_folder(self, path: str) -> None:
        """Creates a folder and its parents, and flushes their names to disk."""
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

    def walk(self, path: str) -> Iterator[str]:
        for folder, below, names in os.walk(path):
            below.sort()
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), path)

    def remove_folder(self, path: str) -> None:
        while os.path.isdir(path):  # another process may be removing it at the same time, which is no error
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)  # removes a link, not its target

    def rename(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        try:
            os.rename(source, target)  # unlike `shutil.move`, it puts no file into a folder of the target's name
        except OSError as error:
            if error.errno != errno.EXDEV:  # on another disk
                raise
            shutil.move(source, target)

    def copy(self, source: str, target: str) -> None:
        shutil.copyfile(source, target)

    def flush(self, path: str, exclude: str | None) -> None:
        for folder, subfolders, names in os.walk(path, onerror=_raise):
            subfolders[:] = [name for name in subfolders if name != exclude]
            for name in names:
                if TEMPORARY.fullmatch(name):  # another process is writing it, flushes it itself, and may remove it
                    continue
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(folder)
        self.flush_name(path)

    def flush_name(self, path: str) -> None:
        sync_folder(os.path.dirname(os.path.abspath(path)))

    def look(self, path: str) -> Snapshot:
        """Returns the file's current bytes as a snapshot, with None if there is no file. A link is an error."""
        try:
            with open(path, "rb", opener=open_own) as file:
                check_regular(path, os.fstat(file.fileno()).st_mode)
                return Snapshot(file.read())
        except FileNotFoundError:
            return Snapshot(None)

    def swap(self, path: str, data: bytes | None, snapshot: Snapshot, unless: tuple[str, Snapshot] | None) -> Snapshot:
        """Replaces or removes a file if it is unchanged, in the steps that the module's docstring lists.

        See `schemas.storage.folders.swap` for the arguments.
        """
        if data is None:
            return self._remove(path, snapshot)
        self.make_folder(os.path.dirname(path) or ".")
        while not self._renamed(path, data, snapshot, unless):
            pass  # another process's fence removed our pending file: write it and compare again
        sync_folder(os.path.dirname(path) or ".")
        self.fence(path)
        # Two swaps may both compare before either of them renames. Then the later rename wins, and the swap that finds
        # other bytes here has lost. With `unless` there is only one swap of the file at a time, so this cannot happen.
        if unless is None and self.look(path).data != data:
            raise Changed(path)
        return Snapshot(data)

    def fence(self, path: str) -> None:
        """Removes all pending files of a file, so that the swaps that wrote them must compare again."""
        folder, name = os.path.dirname(path) or ".", os.path.basename(path)
        for pending in glob.glob(f"{glob.escape(folder)}/.{glob.escape(name)}.*.tmp"):
            self.delete(pending)

    def _renamed(self, path: str, data: bytes, snapshot: Snapshot, unless: tuple[str, Snapshot] | None) -> bool:
        """Writes the pending file, compares, and renames.

        Returns False if the pending file was removed before the rename.
        """
        with self._pending(path, data) as pending:
            self._expect(unless)
            self._expect((path, snapshot))
            try:
                os.replace(pending, path)
            except FileNotFoundError:
                # On a network file system the rename may have succeeded, lost its answer, and then been repeated.
                return self.look(path).data == data
        return True

    @contextlib.contextmanager
    def _pending(self, path: str, data: bytes) -> Iterator[str]:
        """Writes a pending file with the future bytes of a file, and flushes it. Removes it if the block raises."""
        pending = temporary_for(path)
        try:
            with open(pending, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield pending
        except BaseException:
            self.delete(pending)
            raise

    def _remove(self, path: str, snapshot: Snapshot) -> Snapshot:
        """Removes a file if it is unchanged.

        Moves the file aside and compares it again. If another process has replaced the file meanwhile, it is put back.
        """
        self._expect((path, snapshot))
        if snapshot.data is None:
            return snapshot
        aside = temporary_for(path)
        try:
            os.rename(path, aside)
        except FileNotFoundError as error:
            raise Changed(path) from error
        try:
            if self.look(aside) != snapshot:
                # Putting it back fails if there is an even newer file, or if the disk has no hard links. In the second
                # case the process that wrote the file will find it gone.
                with contextlib.suppress(OSError):
                    os.link(aside, path)
                raise Changed(path)
        finally:
            self.delete(aside)
        return Snapshot(None)

    def _expect(self, file: tuple[str, Snapshot] | None) -> None:
        """Raises `Changed` if a file differs from its snapshot. Does nothing for None."""
        if file is not None and self.look(file[0]) != file[1]:
            raise Changed(file[0])


def _looked_at(path: str, identity: Hashable) -> tuple[str, FileStat | None, Hashable]:
    """Returns a path with its size and version, and its identity.

    Size and version are None if the path is no regular file.

    Such a path is listed all the same: whoever reads it later reports the problem.
    """
    try:
        file_stat = os.stat(path)
    except (OSError, ValueError):
        return path, None, identity
    return (
        path,
        FileStat(file_stat.st_size, str(file_stat.st_mtime_ns)) if S_ISREG(file_stat.st_mode) else None,
        identity,
    )


def _scan(pattern: str) -> Iterator[str]:
    """Yields the paths that a pattern without `**` matches.

    `glob.iglob` does the same, but holds all names of a folder in memory.
    """
    parts = pattern.split("/")
    # The parts before the first with a wildcard are the folder in which the search begins.
    literal = next((i for i, part in enumerate(parts) if globs.MAGIC & set(part)), len(parts))
    folder = "/".join(parts[:literal])
    root = f"{folder.rstrip('/') or folder}/" if literal else ""
    if parts[-1]:  # a pattern that ends with a slash names folders only
        yield from _scan_below(root, [part for part in parts[literal:] if part])


def _scan_below(root: str, parts: Sequence[str]) -> Iterator[str]:
    """Yields the paths below a folder that the remaining parts of a pattern match.

    Args:
      root: the folder; '' or a path that ends with a slash.
      parts: the parts of the pattern, between slashes.
    """
    if not parts:
        return
    first, rest = parts[0], parts[1:]
    if not globs.MAGIC & set(first):
        path = root + first
        if rest and os.path.isdir(path):
            yield from _scan_below(f"{path}/", rest)
        elif not rest and os.path.lexists(path):
            yield path
        return
    with contextlib.suppress(OSError, ValueError), os.scandir(root or ".") as entries:
        for entry in entries:
            if globs.part_matches(entry.name, first):
                path = root + entry.name
                if not rest:
                    yield path
                elif os.path.isdir(path):
                    yield from _scan_below(f"{path}/", rest)


def _raise(error: OSError) -> None:
    """Raises an error, for `os.walk`, which would otherwise ignore errors."""
    raise error
