"""Folders and moves, whatever the store; on Google Cloud Storage a folder is a common prefix of names."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from schemas.errors import MillraceError
from schemas.storage.paths import for_each, is_local, join, store_of, wrap_errors


def make(path: str) -> None:
    """Creates a local folder and its parents, durably; does nothing on GCS."""
    store_of(path).make_folder(path)


def walk(path: str) -> Iterator[str]:
    """Yields the files below a folder, by their paths relative to it, sorted."""
    with wrap_errors(path):
        yield from store_of(path).walk(path)


def move(source: str, target: str) -> None:
    """Gives a file its final name: a rename on local disk, a server-side copy on GCS, else an upload."""
    if is_local(source) and not is_local(target):
        upload(source, target)
        os.unlink(source)
    else:
        with wrap_errors(target):
            store_of(target).rename(source, target)


def upload(local: str, target: str) -> None:
    """Copies a local file to a path of either kind, in one put on GCS."""
    with wrap_errors(target):
        store_of(target).upload(local, target)


def copy(source: str, target: str, *, exclude: str | None = None) -> None:
    """Copies all files of a folder, and nothing beside it. Replaces files of the same names.

    Args:
      source: the folder, local or gs://.
      target: the folder to copy to, local or gs://.
      exclude: folders of this name are not copied.

    Raises:
      MillraceError: a file cannot be read or written, or an object's name would lead out of a local folder.
    """

    def copy_one(name: str) -> None:
        there = join(target, name)
        make(os.path.dirname(there))
        if is_local(source):
            upload(join(source, name), there)
        else:
            with wrap_errors(there):
                store_of(source).copy(join(source, name), there)

    names = [name for name in walk(source) if exclude not in name.split("/")[:-1]]
    for name in names if is_local(target) else ():
        if ".." in name.split("/") or "\0" in name:
            raise MillraceError(f"{join(source, name)!r}: is no name of a local file; nothing was copied. Remove it")
    for_each(source if is_local(target) else target, copy_one, names)


@contextlib.contextmanager
def written_locally(path: str) -> Iterator[str]:
    """A local path for libraries that write files and folders: `path` itself, or a temporary one, uploaded at the end.

    Nothing is uploaded if the block raises.
    """
    if is_local(path):
        make(os.path.dirname(path) or ".")
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        yield local
        if os.path.isdir(local):
            copy(local, path)
        else:
            upload(local, path)


def remove(path: str) -> None:
    """Removes a folder and everything below it, if it exists."""
    with wrap_errors(path):
        store_of(path).remove_folder(path)


def flush(path: str) -> None:
    """Flushes a local folder, everything below it, and its own name to disk; does nothing on GCS.

    Raises:
      MillraceError: a file or folder cannot be flushed.
    """
    with wrap_errors(path):
        store_of(path).flush(path)


def flush_name(path: str) -> None:
    """Flushes the name of a local file or folder to disk, by flushing the folder that contains it."""
    with wrap_errors(path):
        store_of(path).flush_name(path)
