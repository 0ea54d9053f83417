"""Writes a file under a temporary name, and renames it when it is complete.

After a power cut there is either the old file or the complete new one.
"""

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
    """A new file, local or gs://, that is written under a temporary local name.

    Only a killed process leaves that name behind.

    As a context manager, it gives the block the open file, commits the file when the block ends, and removes it if the
    block raises.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        name = os.path.abspath(path) if is_local(path) else os.path.join(tempfile.gettempdir(), os.path.basename(path))
        folders.make(os.path.dirname(name))
        self._temporary = temporary_for(name)
        with wrap_errors(path):
            self.file: BinaryIO = open(self._temporary, "xb", buffering=1 << 20)  # noqa: SIM115 - `close` closes it

    def commit(self) -> None:
        """Flushes the file to disk, and gives it its final name: a rename on local disk, an upload on GCS."""
        with wrap_errors(self._path):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            folders.move(self._temporary, self._path)
        folders.flush_name(self._path)

    def close(self) -> None:
        """Closes the file, and removes it if it was not committed."""
        with contextlib.suppress(OSError):  # closing flushes, which a full disk refuses; these bytes are not needed
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
