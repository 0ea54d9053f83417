"""Files on local disk, and on network disks that are mounted."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
from collections.abc import Hashable, Iterator, Sequence
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

from schemas.errors import MillraceError
from schemas.storage import disk, globs, local_swap
from schemas.storage.redact import redacted
from schemas.storage.store import FileStat, Seen, check_version, folder_error


class LocalStore:
    """Files of this machine."""

    tensorflow_reads = True

    def explain(self, error: Exception) -> str | None:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            return "is a link; expected a file. Replace the link with the original"
        return (error.strerror or redacted(str(error))) if isinstance(error, OSError) else None

    def lacks_bucket(self, error: BaseException) -> bool:
        return False

    def stat(self, path: str) -> FileStat:
        found = os.stat(path)
        disk.check_regular(path, found.st_mode)
        return FileStat(found.st_size, str(found.st_mtime_ns))

    def open(self, path: str, version: str | None) -> BinaryIO:
        file = open(path, "rb", opener=disk.open_at_once)  # noqa: SIM115 - the caller closes it
        try:
            found = os.fstat(file.fileno())
            disk.check_regular(path, found.st_mode)
            check_version(path, version, str(found.st_mtime_ns))
        except MillraceError:
            file.close()
            raise
        return file

    def read(self, path: str) -> bytes:
        with self.open(path, None) as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        disk.write(path, data)

    def delete(self, path: str) -> None:
        disk.delete(path)

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
        """Device and inode, links followed; the resolved path if there is no file."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return os.path.realpath(path)
        if S_ISDIR(found.st_mode):
            raise folder_error(path)
        # Some network file systems have no inode numbers.
        return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)

    def make_folder(self, path: str) -> None:
        disk.make_folder(path)

    def walk(self, path: str) -> Iterator[str]:
        for folder, below, names in os.walk(path):
            below.sort()
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), path)

    def remove_folder(self, path: str) -> None:
        while os.path.isdir(path):  # another process may be removing it at the same time, which is no error
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        shutil.move(source, target)

    def copy(self, source: str, target: str) -> None:
        shutil.copyfile(source, target)

    def upload(self, local: str, target: str) -> None:
        shutil.copyfile(local, target)

    def flush(self, path: str) -> None:
        for folder, _, names in os.walk(path, onerror=_raise):
            for name in names:
                if disk.is_temporary(name):  # another process is writing it, flushes it itself, and may remove it
                    continue
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            disk.sync_folder(folder)
        self.flush_name(path)

    def flush_name(self, path: str) -> None:
        disk.sync_folder(os.path.dirname(os.path.abspath(path)))

    def look(self, path: str) -> Seen:
        return local_swap.look(path)

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        return local_swap.swap(path, data, seen, unless)

    def fence(self, path: str) -> None:
        local_swap.fence(path)


def _looked_at(path: str, identity: Hashable) -> tuple[str, FileStat | None, Hashable]:
    """A path with its size and version; without, for what is no file: its reader reports that."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, None, identity
    return path, FileStat(found.st_size, str(found.st_mtime_ns)) if S_ISREG(found.st_mode) else None, identity


def _scan(pattern: str) -> Iterator[str]:
    """As `glob.iglob`, which holds all names of a folder in memory; patterns with `**` excepted."""
    parts = pattern.split("/")
    literal = next((i for i, part in enumerate(parts) if globs.MAGIC & set(part)), len(parts))
    folder = "/".join(parts[:literal])
    root = f"{folder.rstrip('/') or folder}/" if literal else ""
    if parts[-1]:  # a pattern that ends with a slash names folders only
        yield from _scan_below(root, [part for part in parts[literal:] if part])


def _scan_below(root: str, parts: Sequence[str]) -> Iterator[str]:
    """The paths below `root`, which is empty or ends with a slash, that the parts of a pattern match."""
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
    raise error
