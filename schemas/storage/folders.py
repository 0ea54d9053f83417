"""Folders and moves, whatever the store; on Google Cloud Storage a folder is a common prefix of names."""

from __future__ import annotations

import os
from collections.abc import Iterator

from schemas.storage.paths import is_local, store_of


def make(path: str) -> None:
    """Makes a local folder and those above it, to stay there through a power cut; GCS needs none."""
    store_of(path).make_folder(path)


def walk(path: str) -> Iterator[str]:
    """Every file below a folder, by its path relative to it, sorted."""
    return store_of(path).walk(path)


def move(source: str, target: str) -> None:
    """Gives a file its final name: a rename on local disk, a server-side copy on GCS, else an upload."""
    if is_local(source) and not is_local(target):
        upload(source, target)
        os.unlink(source)
    else:
        store_of(target).rename(source, target)


def upload(local: str, target: str) -> None:
    """Copies a local file to a path of either kind, in one put on GCS."""
    store_of(target).upload(local, target)


def remove(path: str) -> None:
    """Removes a folder and all below it; it is no error if there is none."""
    store_of(path).remove_folder(path)


def flush(path: str) -> None:
    """Has a local folder, all below it, and its own name survive a power cut; on GCS they do.

    Raises:
      MillraceError: something cannot be read or written.
    """
    store_of(path).flush(path)


def flush_name(path: str) -> None:
    """Has the name of a local file or folder survive a power cut: what flushes it is the folder that holds it."""
    store_of(path).flush_name(path)
