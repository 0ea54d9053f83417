"""A text file that gets its name when it is whole; or standard output, which has what is written at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from typing import Protocol

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders

STANDARD_OUTPUT = "-"


class Written(Protocol):
    """Where text goes."""

    def write(self, text: str) -> object:
        """Adds to it."""

    def commit(self) -> None:
        """Says that it is whole."""

    def close(self) -> None:
        """Removes what was not committed."""


class PartialFile:
    """A file that is being written under another name, and locked, so that one that nobody writes to is known."""

    def __init__(self, path: str) -> None:
        remote = not storage.is_local(path)
        self._path = path if remote else os.path.abspath(path)
        self._folder = tempfile.gettempdir() if remote else os.path.dirname(self._path)
        folders.make(self._folder)
        name = os.path.basename(path)
        remove_partial(self._folder, name)
        while True:
            self._aside = os.path.join(self._folder, f".{name}.{secrets.token_hex(4)}.partial")
            with storage.wrap_errors(path):
                self._file = open(self._aside, "x", encoding="utf-8", newline="\n", buffering=1 << 20)  # noqa: SIM115
            _lock(self._file.fileno(), wait=True)
            if os.path.exists(self._aside):
                return
            self._file.close()  # removed as left over, by another process that took the lock first

    def write(self, text: str) -> None:
        with storage.wrap_errors(self._path):
            self._file.write(text)

    def commit(self) -> None:
        """Gives the file its name, once it is on disk: a power cut leaves the old file or all of the new one."""
        with storage.wrap_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            folders.move(self._aside, self._path)
            self._file.close()
        if storage.is_local(self._path):
            storage.sync_folder(self._folder)

    def close(self) -> None:
        """Removes what was not committed."""
        with contextlib.suppress(OSError):  # a full disk: what is left in the buffer is not wanted
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._aside)


class StandardOutput:
    """The file descriptor itself: nothing is held back, and what was written stays."""

    def write(self, text: str) -> None:
        data = memoryview(text.encode())
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError as error:
            told = "closed" if isinstance(error, BrokenPipeError) else error.strerror
            raise MillraceError(f"standard output: {told} before all predictions were written") from None

    def commit(self) -> None:
        """Nothing: it is there."""

    def close(self) -> None:
        """Nothing: what is written cannot be taken back."""


def remove_partial(folder: str, name: str) -> None:
    """Removes what killed processes left of a file, or of any JSON lines. Whose process lives is locked, and stays."""
    left_over = re.compile(rf"\.({re.escape(name)}|.+\.jsonl)\.[0-9a-f]{{8}}\.partial")
    with contextlib.suppress(OSError):  # a folder that cannot be listed is no reason not to write
        for found in filter(left_over.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):  # another user's, or gone by now
                path = os.path.join(folder, found)
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    if _lock(handle):
                        os.unlink(path)
                finally:
                    os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool:
    """Takes the lock on a file, which its process holds until it closes it or ends. False where another has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # also a file system without locks: nothing is removed there
        return False
    return True


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[Written]:
    """A file to write to, local or gs://, or `-`; without `commit` nothing is left of a file."""
    aside: Written = StandardOutput() if path == STANDARD_OUTPUT else PartialFile(path)
    try:
        yield aside
    finally:
        aside.close()
