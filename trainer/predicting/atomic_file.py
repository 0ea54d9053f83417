"""Output that is either a text file, which appears when it is complete, or standard output, written immediately."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders

STANDARD_OUTPUT = "-"


class PartialFile:
    """A file under a temporary name, `.<name>.<hex>.partial`, until it is complete. Only a kill leaves it behind."""

    def __init__(self, path: str) -> None:
        remote = not storage.is_local(path)
        self._path = path if remote else os.path.abspath(path)
        self._folder = tempfile.gettempdir() if remote else os.path.dirname(self._path)
        folders.make(self._folder)
        self._temporary = os.path.join(self._folder, f".{os.path.basename(path)}.{secrets.token_hex(4)}.partial")
        with storage.wrap_errors(path):
            self._file = open(self._temporary, "x", encoding="utf-8", newline="\n", buffering=1 << 20)  # noqa: SIM115

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


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[PartialFile | StandardOutput]:
    """Opens an output, local or gs:// or `-`. A file that is not committed is removed."""
    output = StandardOutput() if path == STANDARD_OUTPUT else PartialFile(path)
    try:
        yield output
    finally:
        output.close()
