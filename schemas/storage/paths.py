"""Files by path, whatever the store: the functions that everything else reads and writes files by."""

from __future__ import annotations

import re
from typing import BinaryIO

from schemas.errors import UsageError
from schemas.storage import disk
from schemas.storage.gcs import PREFIX as GCS
from schemas.storage.gcs import GcsStore
from schemas.storage.local import LocalStore
from schemas.storage.store import FileStat, Store, wrap_errors

_LOCAL = LocalStore()
_STORES: dict[str, Store] = {GCS: GcsStore()}  # by prefix; all other paths are local
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def store_of(path: str) -> Store:
    """The store that a path names."""
    return next((store for prefix, store in _STORES.items() if path.startswith(prefix)), _LOCAL)


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's."""
    return store_of(path) is _LOCAL


def check_scheme(path: str, where: str = "") -> None:
    """UsageError for an address of another store, such as s3://; `where` stands before it in the message."""
    if _SCHEME.match(path) and is_local(path):
        known = ", ".join(_STORES)
        raise UsageError(
            f"{where}{path}: unsupported address; use a local path or {known}, and copy other data there first"
        )


def stat(path: str) -> FileStat:
    """A file's size and version; MillraceError if it cannot be read."""
    with wrap_errors(path):
        return store_of(path).stat(path)


def open_read(path: str, *, version: str | None = None) -> BinaryIO:
    """A seekable binary file; where `version` is given, of that very version.

    Raises:
        MillraceError: the file cannot be opened, or has another version by now.
    """
    with wrap_errors(path):
        return store_of(path).open(path, version)


def read_bytes(path: str) -> bytes:
    """The whole file as it was at one moment, also while another process replaces it.

    Raises:
        MillraceError: the file cannot be read.
    """
    with wrap_errors(path):
        return store_of(path).read(path)


def write_bytes(path: str, data: bytes) -> None:
    """Puts a whole file in one step: readers see the old content or the new, never a part.

    Local disk: a temporary file in the same folder, flushed to disk, then renamed. GCS: one upload.
    """
    with wrap_errors(path):
        store_of(path).write(path, data)


def exists(path: str) -> bool:
    """Whether there is a file or a folder of this name."""
    with wrap_errors(path):
        return store_of(path).exists(path)


def join(path: str, *parts: str) -> str:
    """Path and parts with one slash between; a part never replaces what stands before it."""
    tail = "/".join(stripped for part in parts if (stripped := part.strip("/")))
    return path + tail if not path or not tail or path.endswith("/") else f"{path}/{tail}"


def listdir(path: str) -> list[str]:
    """The names in a folder, sorted; empty where there is no such folder."""
    with wrap_errors(path):
        return store_of(path).listdir(path)


def delete(path: str) -> None:
    """Removes a file; it is no error if there is none."""
    with wrap_errors(path):
        store_of(path).delete(path)


def check_output(path: str, *, hint: str = "") -> None:
    """Refuses to write a file over what is none. A file is put in one rename, which would replace the thing itself.

    Args:
      path: where a file is to be put.
      hint: what else to do, for the message.

    Raises:
      UsageError: a folder, a link, a pipe or a device stands there.
    """
    if is_local(path):
        disk.check_output(path, hint=hint)
