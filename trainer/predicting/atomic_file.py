"""Output that is either a text file, which appears when it is complete, or standard output, written immediately."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders

STANDARD_OUTPUT = "-"


class PartialFile:
    """A file under a temporary name, locked while it is written, so that leftovers of dead processes are recognized."""

    def __init__(self, path: str) -> None:
        remote = not storage.is_local(path)
        self._path = path if remote else os.path.abspath(path)
        self._folder = tempfile.gettempdir() if remote else os.path.dirname(self._path)
        folders.make(self._folder)
        name = os.path.basename(path)
        # of this file, or of any JSON lines
        remove_leftovers(self._folder, rf"\.({re.escape(name)}|.+\.jsonl)\.[0-9a-f]{{8}}\.partial", os.unlink)
        while True:
            self._temporary = os.path.join(self._folder, f".{name}.{secrets.token_hex(4)}.partial")
            with storage.wrap_errors(path):
                self._file = open(self._temporary, "x", encoding="utf-8", newline="\n", buffering=1 << 20)  # noqa: SIM115
            with contextlib.suppress(OSError):  # on file systems without locks, nothing is removed
                storage.lock(self._file)
            if os.path.exists(self._temporary):
                return
            self._file.close()  # another process took the lock first and removed the file as a leftover

    def write(self, text: str) -> None:
        with storage.wrap_errors(self._path):
            self._file.write(text)

    def commit(self) -> None:
        """Syncs the file to disk, then renames it: after a power cut, there is the old file or all of the new one."""
        with storage.wrap_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            folders.move(self._temporary, self._path)
            self._file.close()
        if storage.is_local(self._path):
            storage.sync_folder(self._folder)

    def close(self) -> None:
        """Removes the file unless it was committed."""
        with contextlib.suppress(OSError):  # a full disk: the rest of the buffer is not needed
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


class StandardOutput:
    """Standard output, without a buffer."""

    def write(self, text: str) -> None:
        data = memoryview(text.encode())
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError as error:
            reason = "closed" if isinstance(error, BrokenPipeError) else error.strerror
            raise MillraceError(f"standard output: {reason} before all predictions were written") from None

    def commit(self) -> None:
        """Does nothing: the output is already written."""

    def close(self) -> None:
        """Does nothing: written output cannot be removed."""


Output = PartialFile | StandardOutput


def remove_leftovers(folder: str, names: str, remove: Callable[[str], None]) -> None:
    """Removes what killed processes have left in a folder, by a regular expression. What live ones write is locked."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed may still be writable
        for found in filter(re.compile(names).fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):  # owned by another user, or already removed
                path = os.path.join(folder, found)
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    if storage.lock(handle, wait=False):
                        remove(path)
                finally:
                    os.close(handle)


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[Output]:
    """Opens an output, local or gs:// or `-`. A file that is not committed is removed."""
    output: Output = StandardOutput() if path == STANDARD_OUTPUT else PartialFile(path)
    try:
        yield output
    finally:
        output.close()
