"""A text file that gets its name when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator

from schemas import folders, storage


class Aside:
    """A file that is being written under another name."""

    def __init__(self, path: str) -> None:
        remote = path.startswith(storage.GCS)
        self._path = path if remote else os.path.abspath(path)
        folder = tempfile.gettempdir() if remote else os.path.dirname(self._path)
        folders.make(folder)
        self._aside = os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(4)}.partial")
        self._file = open(self._aside, "x", encoding="utf-8", newline="\n", buffering=1 << 20)  # noqa: SIM115
        self.write = self._file.write

    def commit(self) -> None:
        """Gives the file its name."""
        self._file.close()
        folders.move(self._aside, self._path)

    def close(self) -> None:
        """Removes what was not committed."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._aside)


@contextlib.contextmanager
def written_aside(path: str) -> Iterator[Aside]:
    """A file to write to, local or gs://; without `commit` nothing is left of it."""
    aside = Aside(path)
    try:
        yield aside
    finally:
        aside.close()
