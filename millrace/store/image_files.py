"""The image files of stored requests, beside the lines that name them, each under the digest of its bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import numpy as np

from schemas import storage
from schemas.storage import folders

FOLDER = "images"
_MAGIC = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"))


def folder_of(store: str, number: int) -> str:
    """The folder of the images that a segment names."""
    return os.path.join(store, FOLDER, f"{number:08d}")


def write_images(store: str, number: int, values: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
    """Writes files, and has them on disk before it returns. The same bytes are one file.

    Args:
      store: the store's folder.
      number: the segment whose lines will name them.
      values: the files' bytes by input, `[rows]`.

    Returns:
      By input, each file's path relative to the store; empty where there are no bytes.

    Raises:
      OSError: they cannot be written.
    """
    folder = folder_of(store, number)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        storage.sync_folder(os.path.dirname(folder))
        storage.sync_folder(store)
    named: dict[str, list[bytes]] = {}
    new = False
    for name, files in values.items():
        named[name] = []
        for data in files:
            file = f"{hashlib.sha256(data).hexdigest()[:32]}{_ending(data)}"
            if data and not os.path.exists(os.path.join(folder, file)):
                _write(os.path.join(folder, file), data)
                new = True
            named[name].append(f"{FOLDER}/{number:08d}/{file}".encode() if data else b"")
    if new:
        storage.sync_folder(folder)
    return named


def remove_images(store: str, number: int) -> None:
    """Removes the images of a segment."""
    folders.remove(folder_of(store, number))


def remove_unnamed(store: str, number: int, named: set[str]) -> None:
    """Removes the files that no line names: a kill came between a file and its line."""
    folder = folder_of(store, number)
    for name in storage.listdir(folder):
        if f"{FOLDER}/{number:08d}/{name}" not in named:
            storage.delete(os.path.join(folder, name))


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(temporary, path)


def _ending(data: bytes) -> str:
    return next((ending for magic, ending in _MAGIC if data.startswith(magic)), ".bin")
