"""Writes a file that gets its name when it is complete. After a power cut there is the old file, or all of the new."""

from __future__ import annotations

import contextlib
import os
import tempfile
from types import TracebackType
from typing import BinaryIO

from schemas.storage import folders
from schemas.storage.local import temporary_for
from schemas.storage.paths import is_local, wrap_errors


class NewFile:
    """A file, local or gs://, that is written under a temporary name. Only a kill leaves that behind.

    As a context manager it gives the open file, commits it when the block ends, and removes it if the block raises.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        name = os.path.abspath(path) if is_local(path) else os.path.join(tempfile.gettempdir(), os.path.basename(path))
        folders.make(os.path.dirname(name))
        self._temporary = temporary_for(name)
        with wrap_errors(path):
            self.file: BinaryIO = open(self._temporary, "xb", buffering=1 << 20)  # noqa: SIM115 - `close` closes it

    def commit(self) -> None:
        """Flushes the file to disk, and gives it its name."""
        with wrap_errors(self._path):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            folders.move(self._temporary, self._path)
        folders.flush_name(self._path)

    def close(self) -> None:
        """Removes the file unless it was committed."""
        with contextlib.suppress(OSError):  # a full disk: the rest of the buffer is not needed
            self.file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.closing(self):
            if kind is None:
                self.commit()
