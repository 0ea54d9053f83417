"""Folders and moves, on local disk and on Google Cloud Storage (where a folder is a common prefix of names)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from schemas.errors import MillraceError
from schemas.storage import GCS, _blob, _client, _split, naming, sync_folder


def make(path: str) -> None:
    """Makes a local folder and those above it, to stay there through a power cut; GCS needs none."""
    if path.startswith(GCS):
        return
    made, above = [], os.path.abspath(path)
    while not os.path.isdir(above) and above != os.path.dirname(above):
        made.append(above)
        above = os.path.dirname(above)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise MillraceError(f"{path}: the folder cannot be made: {error.strerror}") from error
    for folder in made:
        flush_name(folder)


def walk(path: str) -> Iterator[str]:
    """Every file below a folder, by its path relative to it, sorted."""
    if path.startswith(GCS):
        bucket, prefix = _split(path.rstrip("/") + "/")
        yield from (blob.name[len(prefix) :] for blob in _client().list_blobs(bucket, prefix=prefix))
        return
    for folder, below, names in os.walk(path):
        below.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), path)


def move(source: str, target: str) -> None:
    """Gives a file its final name: a rename on local disk, a server-side copy on GCS."""
    if target.startswith(GCS):
        if not source.startswith(GCS):
            upload(source, target)
            os.unlink(source)
            return
        blob = _blob(source)
        destination = _blob(target)
        token, _, _ = destination.rewrite(blob)
        while token is not None:
            token, _, _ = destination.rewrite(blob, token=token)
        blob.delete()
        return
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    shutil.move(source, target)


def upload(local: str, target: str) -> None:
    """Copies a local file to a path of either kind, in one put on GCS."""
    if target.startswith(GCS):
        _blob(target).upload_from_filename(local)
    else:
        shutil.copyfile(local, target)


def remove(path: str) -> None:
    """Removes a folder and all below it; it is no error if there is none."""
    if path.startswith(GCS):
        bucket, prefix = _split(path.rstrip("/") + "/")
        for blob in list(_client().list_blobs(bucket, prefix=prefix)):
            blob.delete()
        return
    while os.path.isdir(path):  # another process may be removing the same: what is gone already is no error
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def flush(path: str) -> None:
    """Has a local folder, all below it, and its own name survive a power cut; on GCS they do.

    Raises:
      MillraceError: something cannot be read or written.
    """
    if path.startswith(GCS):
        return
    with naming(path):
        for folder, _, names in os.walk(path, onerror=_raise):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(folder)
    flush_name(path)


def flush_name(path: str) -> None:
    """Has the name of a local file or folder survive a power cut: what flushes it is the folder that holds it."""
    if not path.startswith(GCS):
        above = os.path.dirname(os.path.abspath(path))
        with naming(above):
            sync_folder(above)


def _raise(error: OSError) -> None:
    raise error
