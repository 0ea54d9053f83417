"""Files on local disk, and on network disks that are mounted."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Hashable, Iterator
from stat import S_ISDIR
from typing import BinaryIO

from schemas.errors import MillraceError, UsageError
from schemas.storage import disk, local_swap
from schemas.storage.store import FileStat, Seen, check_version, wrap_errors


class LocalStore:
    """Files of this machine."""

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

    def matches(self, pattern: str) -> list[str]:
        if os.path.exists(pattern):  # also a name that happens to hold a glob's signs
            return [pattern]
        # Also links that lead nowhere, and pipes: their reader says so, where leaving them out would be silent.
        return [path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path)]

    def identity(self, path: str) -> Hashable:
        """Device and inode, links followed; of a file that is not there its path."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return os.path.realpath(path)
        if S_ISDIR(found.st_mode):
            globs = f"{os.path.join(path, '*.csv')}, or {os.path.join(path, '*/*')} for images in folders"
            raise UsageError(f"{path}: is a folder; give files, or a glob pattern such as {globs}")
        # Some network file systems number no files.
        return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)

    def make_folder(self, path: str) -> None:
        disk.make_folder(path)

    def walk(self, path: str) -> Iterator[str]:
        for folder, below, names in os.walk(path):
            below.sort()
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), path)

    def remove_folder(self, path: str) -> None:
        while os.path.isdir(path):  # another process may be removing the same: what is gone already is no error
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        shutil.move(source, target)

    def upload(self, local: str, target: str) -> None:
        shutil.copyfile(local, target)

    def flush(self, path: str) -> None:
        with wrap_errors(path):
            for folder, _, names in os.walk(path, onerror=_raise):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        os.fsync(file.fileno())
                disk.sync_folder(folder)
        self.flush_name(path)

    def flush_name(self, path: str) -> None:
        above = os.path.dirname(os.path.abspath(path))
        with wrap_errors(above):
            disk.sync_folder(above)

    def look(self, path: str) -> Seen:
        return local_swap.look(path)

    def swap(self, path: str, data: bytes | None, seen: Seen, unless: tuple[str, Seen] | None) -> Seen:
        return local_swap.swap(path, data, seen, unless)

    def fence(self, path: str) -> None:
        local_swap.fence(path)


def _raise(error: OSError) -> None:
    raise error
