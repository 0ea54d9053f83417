"""Output that is either a text file, which appears when it is complete, or standard output, written immediately."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from schemas import storage
from schemas.errors import MillraceError

STANDARD_OUTPUT = "-"


class TextFile:
    """A text file, local or gs://, that appears when it is committed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._new = storage.NewFile(path)

    def write(self, text: str) -> None:
        with storage.wrap_errors(self._path):
            self._new.file.write(text.encode())

    def commit(self) -> None:
        """Gives the file its name, once it is on disk."""
        self._new.commit()

    def close(self) -> None:
        """Removes the file unless it was committed."""
        self._new.close()


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
def atomic_output(path: str) -> Iterator[TextFile | StandardOutput]:
    """Opens an output, local or gs:// or `-`. A file that is not committed is removed."""
    with contextlib.closing(StandardOutput() if path == STANDARD_OUTPUT else TextFile(path)) as output:
        yield output
