"""Copies, moves, flushes and removes folders on any store, refuses links, and replaces a file only if it is unchanged.

On Google Cloud Storage a folder is a common prefix of object names.

Links: jobs and exports never write links. A link may point outside the folder that a reader checks, copies or removes,
so readers refuse every link inside a folder. Links on the path that leads to the folder are allowed.

Compare and swap: `look` reads a file, and `swap` replaces the file only if it is still as `look` found it. If two
processes swap after the same `look`, one of the swaps fails, even if a process is stopped for a long time between two
of its steps. `schemas.storage.local` and `schemas.storage.gcs` say how each store does this.
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
    """Creates a local folder and its parents, and flushes their names to disk. Does nothing on GCS."""
    store_of(path).make_folder(path)


def walk(path: str) -> Iterator[str]:
    """Yields the path of each file below a folder, relative to the folder, in sorted order."""
    with wrap_errors(path):
        yield from store_of(path).walk(path)


def move(source: str, target: str) -> None:
    """Renames a file to its final name, across stores if necessary.

    A rename on local disk, a copy on the server and a deletion on GCS, and an upload for a local file whose target is
    on GCS.
    """
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
    """Copies all files below a folder to another folder, where they replace files of the same names.

    Args:
      source: the folder to copy, local or gs://.
      target: the folder to copy to, local or gs://.
      exclude: files in subfolders of this name, at any depth, are not copied; None copies all files.

    Raises:
      MillraceError: a file cannot be read or written, or an object's name (such as `../a`) would lead out of the local
        target.
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
    # `for_each` uses several threads if its path is remote, so it gets the remote one of the two folders.
    for_each(source if is_local(target) else target, copy_one, names)


@contextlib.contextmanager
def written_locally(path: str) -> Iterator[str]:
    """Gives a library that writes only local files a path for a file or folder that belongs at `path`.

    If `path` is local, the block writes to `path` itself. Otherwise it writes to a temporary path, which is uploaded
    when the block ends. If the block raises, nothing is uploaded.
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
    """Removes a folder and everything below it, if it exists. If the path is a link, only the link is removed."""
    with wrap_errors(path):
        store_of(path).remove_folder(path)


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Locks a local folder during the `with` block, and yields whether the lock was free.

    The lock is `flock`: the system ends it with the process, even if the process is killed. Yields False if another
    process has locked the folder. Yields True without a lock in buckets and on network disks that have no such locks.
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
    """Flushes to disk a local folder, everything below it, and its own name. Does nothing on GCS.

    Args:
      path: the folder.
      exclude: subfolders of this name, at any depth, are not flushed; None flushes all.

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
    """Returns which of some files, or of the folders on their paths, are links.

    Args:
      root: the folder that the names are relative to. `root` itself may be a link.
      names: paths of files.

    Returns:
      The links, relative to `root`, sorted. Empty on GCS, which has no links.
    """
    if not is_local(root):
        return []
    # Collect the names and all folders above them: in each round, the parents that are new.
    below = set(names)
    todo = below
    while todo:
        todo = {os.path.dirname(name) for name in todo} - below - {""}
        below |= todo
    return sorted(name for name in below if os.path.islink(join(root, name)))


def links_in(folder: str) -> list[str]:
    """Returns all links below a folder, relative to the folder, sorted. Links are not followed. Empty on GCS."""
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
    """Returns the links that make a run's files unsafe to read, relative to `data_dir`, sorted.

    These are all links in the run's folder, and each file or folder on the path of a named file that is a link.

    Args:
      data_dir: the dataset's directory.
      run: the name of the run's folder in `data_dir`.
      names: the files that the manifest names, relative to `data_dir`.
    """
    links = {join(run, name) for name in links_in(join(data_dir, run))}
    elsewhere = [name for name in names if not name.startswith(f"{run}/")]
    return sorted(links.union(links_to(data_dir, [run, *elsewhere])))


def refuse_links(root: str, links: Iterable[str], *, advice: str = "") -> None:
    """Raises an error about the first of some links; does nothing if the list is empty.

    Args:
      root: the folder that the links are relative to.
      links: the result of `links_to`, `links_in` or `links_of`.
      advice: the end of the message.

    Raises:
      MillraceError: there is a link.
    """
    for link in links:
        full = join(root, link)
        raise MillraceError(f"{full}: {link_fault(full)}{advice}.")


def link_fault(path: str) -> str:
    """Returns the message about a link, without the path of the link itself.

    The message is `is a link to TARGET; expected a file or folder. ...`.
    """
    try:
        target = os.readlink(path)
    except OSError:  # replaced since
        target = "another place"
    return f"is a link to {target[:200]}; expected a file or folder. Replace the link with the original"


__all__ = ["Changed", "Snapshot", "create", "fence", "look", "swap"]


def look(path: str) -> Snapshot:
    """Reads a file for a later `swap`. Returns its bytes (None if there is no such file) and what `swap` compares."""
    with wrap_errors(path):
        return store_of(path).look(path)


def swap(path: str, data: bytes | None, snapshot: Snapshot, *, unless: tuple[str, Snapshot] | None = None) -> Snapshot:
    """Replaces or removes a file, if the file has not changed since `look` returned `snapshot`.

    Args:
      path: the file.
      data: its new bytes; None removes the file.
      snapshot: what `look`, or the previous `swap`, returned for this file.
      unless: another file and its snapshot. If that other file has changed, nothing is done. This is only safe together
        with `fence`: a process that changes the other file calls `fence(path)` before it looks at `path`. Then every
        swap of `path` that compared the old content of the other file is either complete by then, or fails.

    Returns:
      The snapshot of the file as it is now, for the next swap.

    Raises:
      Changed: one of the two files has changed; nothing was done.
      MillraceError: the file cannot be written.
    """
    with wrap_errors(path):
        return store_of(path).swap(path, data, snapshot, unless)


def create(path: str, data: bytes) -> bool:
    """Writes a file if there is no file of this name yet. Returns whether it was written."""
    try:
        swap(path, data, Snapshot(None))
    except Changed:
        return False
    return True


def fence(path: str) -> None:
    """Makes every swap of this file fail that has compared the file already and has not replaced it yet.

    Such a swap compares again, and so notices what has changed in the meantime.
    """
    with wrap_errors(path):
        store_of(path).fence(path)
