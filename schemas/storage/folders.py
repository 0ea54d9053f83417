"""Copies, moves and removes files and folders on any store, refuses links, and swaps a file if it has not changed.

On Google Cloud Storage a folder is a common prefix of names.

Jobs and exports never write links. The target of a link may be outside the folder that is checked, copied and removed,
so readers refuse every link in it. The folder itself may be reached through links.

Of two swaps that begin from the same `look`, one fails, however long a process is stopped between any two of its steps.
Each store does this in its own way: see `schemas.storage.local` and `schemas.storage.gcs`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator

from schemas.errors import MillraceError
from schemas.storage.local import lock
from schemas.storage.paths import for_each, is_local, join, store_of, wrap_errors
from schemas.storage.store import Changed, Snapshot


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


def move_folder(source: str, target: str) -> None:
    """Gives a folder its final name: one rename on local disk; in a bucket, a copy and a deletion of each object."""
    if is_local(source):
        move(source, target)
    else:
        copy(source, target)
        remove(source)


def upload(local: str, target: str) -> None:
    """Copies a local file to a path of either kind, in one put on GCS."""
    with wrap_errors(target):
        store_of(target).copy(local, target)


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
        with wrap_errors(there):
            store_of(there if is_local(source) else source).copy(join(source, name), there)

    names = [name for name in walk(source) if exclude not in name.split("/")[:-1]]
    for name in names if is_local(target) else ():
        if ".." in name.split("/") or "\0" in name:
            raise MillraceError(
                f"{join(source, name)!r}: not a valid name of a local file; nothing was copied. Remove the object"
            )
    for_each(source if is_local(target) else target, copy_one, names)


@contextlib.contextmanager
def written_locally(path: str) -> Iterator[str]:
    """Gives libraries a local path to write to: `path` itself, or a temporary one that is uploaded at the end.

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
    """Removes a folder and everything below it, if it exists; of a link only the link."""
    with wrap_errors(path):
        store_of(path).remove_folder(path)


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Locks a folder in the `with` block; the system ends the lock with the process, however that ends.

    Gives False if another process has it. Always True where there are no such locks: in buckets, and on some network
    disks.
    """
    if not is_local(path):
        yield True
        return
    make(path)
    handle = os.open(path, os.O_RDONLY)
    try:
        is_free = True
        with contextlib.suppress(OSError):
            is_free = lock(handle, wait=False)
        yield is_free
    finally:
        os.close(handle)


def flush(path: str, *, exclude: str | None = None) -> None:
    """Flushes a local folder, everything below it, and its own name to disk; does nothing on GCS.

    Args:
      path: the folder.
      exclude: folders of this name are not flushed.

    Raises:
      MillraceError: a file or folder cannot be flushed.
    """
    with wrap_errors(path):
        store_of(path).flush(path, exclude)


def flush_name(path: str) -> None:
    """Flushes the name of a local file or folder to disk, by flushing the folder that contains it."""
    with wrap_errors(path):
        store_of(path).flush_name(path)


def links_to(root: str, names: Iterable[str]) -> list[str]:
    """Returns the files, and folders on their paths, that are links: relative to `root`, sorted.

    On GCS there are none.
    """
    if not is_local(root):
        return []
    below = set(names)
    todo = below
    while todo:
        todo = {os.path.dirname(name) for name in todo} - below - {""}
        below |= todo
    return sorted(name for name in below if os.path.islink(join(root, name)))


def links_in(folder: str) -> list[str]:
    """Returns all links below a folder, relative to it, sorted; none of them is followed. On GCS there are none."""
    if not is_local(folder):
        return []
    links, waiting = [], [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:  # finds links without a stat of each entry
                for entry in entries:
                    if entry.is_symlink():
                        links.append(os.path.relpath(entry.path, folder))
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # not a readable folder: its reader reports that
            continue
    return sorted(links)


def links_of(data_dir: str, run: str, names: Iterable[str]) -> list[str]:
    """Returns all links in a run's folder, and in place of a file or folder that a manifest names, relative to
    `data_dir`."""
    links = {join(run, name) for name in links_in(join(data_dir, run))}
    elsewhere = [name for name in names if not name.startswith(f"{run}/")]
    return sorted(links.union(links_to(data_dir, [run, *elsewhere])))


def refuse_links(root: str, links: Iterable[str], *, advice: str = "") -> None:
    """Refuses links, which `links_to`, `links_in` or `links_of` have found below a folder.

    Raises:
      MillraceError: there is one; the message ends with `advice`.
    """
    for link in links:
        full = join(root, link)
        raise MillraceError(f"{full}: {link_fault(full)}{advice}.")


def link_fault(path: str) -> str:
    """Returns the message about a link, without the link's own path."""
    try:
        target = os.readlink(path)
    except OSError:  # replaced since
        target = "another place"
    return f"is a link to {target[:200]}; expected a file or folder. Replace the link with the original"


__all__ = ["Changed", "Snapshot", "create", "fence", "look", "swap"]


def look(path: str) -> Snapshot:
    """Returns the file's current bytes, and what a swap compares with."""
    with wrap_errors(path):
        return store_of(path).look(path)


def swap(path: str, data: bytes | None, snapshot: Snapshot, *, unless: tuple[str, Snapshot] | None = None) -> Snapshot:
    """Replaces or removes the file, if it is still as in `snapshot`.

    Args:
      path: the file.
      data: its new bytes; None removes it.
      snapshot: what `look`, or the swap before, returned.
      unless: another file, and how it was seen: if it has changed since, nothing is done. A process that changes that
        file calls `fence` for this one before it looks at it; a swap that has already compared both is then complete
        or fails.

    Returns:
      The file as it is now, for the next swap.

    Raises:
      Changed: one of the two files has changed; nothing was done.
      MillraceError: the file cannot be written.
    """
    with wrap_errors(path):
        return store_of(path).swap(path, data, snapshot, unless)


def create(path: str, data: bytes) -> bool:
    """Writes a file unless there is one. Returns whether it was written."""
    try:
        swap(path, data, Snapshot(None))
    except Changed:
        return False
    return True


def fence(path: str) -> None:
    """Makes every swap fail that has compared already and is not complete; it must compare again."""
    with wrap_errors(path):
        store_of(path).fence(path)
